"""Exports a checkpoint to MNN: export_mnn.py CHECKPOINT OUTPUT BITS.

Runs in the converters' environment, where armload is not installed.
"""

import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path


def main() -> None:
    """Export, with llmexport's own defaults for everything but the bits."""
    checkpoint, output, bits = sys.argv[1:]
    # MNN's mnnconvert would install further packages, and report each conversion to its maker.
    sys.modules["MNN.tools.utils.log"] = None  # type: ignore[assignment]
    need_tokenizer_json(Path(checkpoint))
    package = find_spec("llmexport")
    if package is None or not package.submodule_search_locations:
        sys.exit("llmexport is not installed")
    # Its modules import each other as if its folder were the program's.
    sys.path.insert(0, package.submodule_search_locations[0])
    sys.argv = ["llmexport", "--path", checkpoint, "--dst_path", output]
    sys.argv += ["--export", "mnn", "--quant_bit", bits]
    import_module("llmexport").main()


def need_tokenizer_json(checkpoint: Path) -> None:
    """Make the file that llmexport needs to write a tokenizer that splits text exactly."""
    if not (checkpoint / "tokenizer.json").is_file():
        tokenizer = import_module("transformers").AutoTokenizer.from_pretrained(str(checkpoint))
        tokenizer.backend_tokenizer.save(str(checkpoint / "tokenizer.json"))


main()
