"""The trained weights as a GGUF file in F16, from which llama-quantize makes the others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from gguf import GGUFWriter

from armload.core.files import written_whole
from armload.models.shape import Shape
from armload.models.synth import describe
from armload.models.vocabulary import Vocabulary
from training.word_problems.model import Parameters

CHAT_TEMPLATE = (
    "{%- for message in messages -%}"
    "{%- if message['role'] == 'assistant' -%}"
    "{{ ' ' + message['content'] + eos_token }}"
    "{%- elif message['role'] == 'system' -%}"
    "{{ message['content'] + '\\n' }}"
    "{%- else -%}"
    "{{ 'Question: ' + message['content'] + '\\nAnswer:' }}"
    "{%- endif -%}"
    "{%- endfor -%}"
)


def write_model(path: Path, shape: Shape, vocabulary: Vocabulary, parameters: Parameters) -> None:
    """Write the file; matrices in F16, norms in F32."""
    with written_whole(path) as beside:
        writer = GGUFWriter(beside, shape.architecture)
        try:
            describe(writer, shape, vocabulary, "F16", name="armload word problems")
            writer.add_bool("tokenizer.ggml.add_space_prefix", val=False)
            writer.add_chat_template(CHAT_TEMPLATE)
            for name, value in parameters.items():
                kind = np.float16 if value.ndim > 1 else np.float32
                writer.add_tensor(name, np.asarray(value).astype(kind))
            writer.write_header_to_file()
            writer.write_kv_data_to_file()
            writer.write_tensors_to_file()
        finally:
            writer.close()
