"""Virtual ARM boards: a Debian arm64 kernel, mksh and toybox under QEMU, without root."""
