"""Writes small checkpoints that see or hear, with random weights: projector_checkpoints.py FOLDER.

Runs in the converters' environment with today's transformers, and with -P: this folder has modules
with names of packages. The tokenizers come from elsewhere.
"""

from __future__ import annotations

import json
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

VOCABULARY = 640
MEDIA_TOKEN = 632
"""Stands for a token of an image or a sound; no text has it."""

SIDE = 96
TEXT: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "hidden_size": 64,
    "intermediate_size": 128,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
# The converter knows the second layer of a projector by its number, which is one of the encoder's.
SQUARES = {"hidden_size": 48, "intermediate_size": 96, "num_hidden_layers": 3}
SQUARES |= {"num_attention_heads": 4, "patch_size": 16}
SPECTRUM = {"num_mel_bins": 80, "max_source_positions": 1500}
HALF = {"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}
WHISPER = {
    "feature_extractor_type": "WhisperFeatureExtractor",
    "feature_size": 80,
    "n_fft": 400,
    "hop_length": 160,
    "chunk_length": 30,
    "sampling_rate": 16_000,
}

SECTIONS = {"rope_type": "default", "mrope_section": [2, 3, 3], "rope_theta": 1_000_000.0}
QWEN = {
    "image_processor_type": "Qwen2VLImageProcessor",
    "min_pixels": 56 * 56,
    "max_pixels": 28 * 28 * 1280,
    "image_mean": [0.48145466, 0.4578275, 0.40821073],
    "image_std": [0.26862954, 0.26130258, 0.27577711],
}
QWEN_TOKENS = {
    "image_token_id": MEDIA_TOKEN,
    "video_token_id": MEDIA_TOKEN + 1,
    "vision_start_token_id": MEDIA_TOKEN + 2,
    "vision_end_token_id": MEDIA_TOKEN + 3,
}

KINDS: dict[str, dict[str, Any]] = {
    "gemma3": {
        "tokenizer": "sentence pieces",
        "words": ["<start_of_image>", "<end_of_image>"],
        "settings": {
            "image_token_index": MEDIA_TOKEN,
            "mm_tokens_per_image": 9,
            "vision_config": {**SQUARES, "image_size": SIDE, "vision_use_head": False},
            "text_config": {
                **TEXT,
                "model_type": "gemma3_text",
                "num_hidden_layers": 6,
                "head_dim": 32,
                "query_pre_attn_scalar": 32,
                "sliding_window": 24,
            },
        },
        "processor": {
            "image_processor_type": "Gemma3ImageProcessor",
            "size": {"height": SIDE, "width": SIDE},
            "image_seq_length": 9,
            **HALF,
        },
    },
    "idefics3": {
        "tokenizer": "llama-bpe",
        "words": ["<fake_token_around_image>", "<global-img>", "\n\n"],
        "settings": {
            "image_token_id": MEDIA_TOKEN,
            "scale_factor": 2,
            "pad_token_id": 0,
            "tie_word_embeddings": False,
            "vision_config": {**SQUARES, "image_size": SIDE},
            "text_config": {**TEXT, "model_type": "llama", "architectures": ["LlamaForCausalLM"]},
        },
        "processor": {
            "image_processor_type": "Idefics3ImageProcessor",
            "size": {"longest_edge": 2 * SIDE},
            "max_image_size": {"longest_edge": SIDE},
            "image_mean": [0.5, 0.4, 0.6],
            "image_std": [0.25, 0.5, 0.5],
        },
    },
    "lfm2_vl": {
        "tokenizer": "llama-bpe",
        "words": ["<|image_start|>", "<|image_end|>", "<|img_thumbnail|>"],
        "settings": {
            "image_token_id": MEDIA_TOKEN,
            "projector_hidden_size": 96,
            "vision_config": {
                **SQUARES,
                "model_type": "siglip2_vision_model",
                "num_patches": 256,
                "vision_use_head": False,
            },
            "text_config": {
                **TEXT,
                "model_type": "lfm2",
                "layer_types": ["conv", "conv", "full_attention", "conv"],
                "block_auto_adjust_ff_dim": False,
            },
        },
        "processor": {"image_processor_type": "Lfm2VlImageProcessor", **HALF},
    },
    "qwen2_5_vl": {
        "tokenizer": "qwen2",
        "words": ["<|vision_start|>", "<|vision_end|>"],
        "settings": {
            **QWEN_TOKENS,
            "vision_config": {
                "depth": 4,
                "hidden_size": 64,
                "intermediate_size": 128,
                "num_heads": 4,
                "out_hidden_size": 64,
                "fullatt_block_indexes": [1, 3],
            },
            "text_config": {**TEXT, "rope_parameters": SECTIONS},
        },
        "processor": QWEN,
    },
    "qwen2_vl": {
        "tokenizer": "qwen2",
        "words": ["<|vision_start|>", "<|vision_end|>"],
        "settings": {
            **QWEN_TOKENS,
            "vision_config": {
                "depth": 3,
                "embed_dim": 64,
                "hidden_size": 64,
                "num_heads": 4,
                "mlp_ratio": 2,
            },
            "text_config": {**TEXT, "rope_parameters": SECTIONS},
        },
        "processor": QWEN,
    },
    "qwen2_audio": {
        "tokenizer": "qwen2",
        "words": ["<|audio_bos|>", "<|audio_eos|>"],
        "settings": {
            "audio_token_index": MEDIA_TOKEN,
            "audio_config": {
                **SPECTRUM,
                "model_type": "qwen2_audio_encoder",
                "d_model": 64,
                "encoder_layers": 3,
                "encoder_attention_heads": 4,
                "encoder_ffn_dim": 128,
            },
            "text_config": {**TEXT, "model_type": "qwen2"},
        },
        "processor": WHISPER,
    },
    "voxtral": {
        "tokenizer": "llama-bpe",
        "words": ["[BEGIN_AUDIO]"],
        "settings": {
            "audio_token_id": MEDIA_TOKEN,
            "audio_config": {
                **SPECTRUM,
                "model_type": "voxtral_encoder",
                "hidden_size": 64,
                "num_hidden_layers": 3,
                "num_attention_heads": 4,
                "intermediate_size": 256,
            },
            "text_config": {**TEXT, "model_type": "llama", "head_dim": 16},
        },
        "processor": WHISPER,
    },
}


def main() -> None:
    """Write all of them."""
    for kind, described in KINDS.items():
        folder = Path(sys.argv[1]) / kind
        write(folder, kind, described["settings"])
        text = json.dumps(described["processor"])
        (folder / "preprocessor_config.json").write_text(text)


def write(folder: Path, kind: str, settings: dict[str, Any]) -> None:
    """Write a checkpoint without its tokenizer."""
    torch, transformers = import_module("torch"), import_module("transformers")
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(kind, **settings)
    model = transformers.AutoModelForMultimodalLM.from_config(config)
    with torch.no_grad():
        for name, values in model.named_parameters():
            if "embed" in name and "patch" not in name:
                values.normal_(0, 1)
            elif values.dim() > 1:
                values.normal_(0, values[0].numel() ** -0.5)
            else:
                values.add_(torch.randn_like(values) * 0.1)
    model.save_pretrained(folder)


if __name__ == "__main__":
    main()
