"""Models in several files."""

from __future__ import annotations

from pathlib import Path

from gguf import GGUFReader, GGUFWriter


def in_two_parts(model: Path, folder: Path) -> Path:
    """Write a model as two files, as llama-gguf-split does; return the first."""
    whole = GGUFReader(model)
    half = -(-len(whole.tensors) // 2)
    architecture = whole.fields["general.architecture"].contents()
    parts = GGUFWriter(folder / "parts.gguf", architecture, split_max_tensors=half)
    for field in whole.fields.values():
        if not field.name.startswith("GGUF.") and field.name != "general.architecture":
            kind, *inner = field.types
            parts.add_key_value(field.name, field.contents(), kind, inner[-1] if inner else None)
    for tensor in whole.tensors:
        parts.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    parts.write_header_to_file()
    parts.write_kv_data_to_file()
    parts.write_tensors_to_file()
    parts.close()
    return folder / "parts-00001-of-00002.gguf"
