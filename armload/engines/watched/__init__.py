"""Programs that armload did not build, run under ``watch``."""
