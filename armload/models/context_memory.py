"""What a model remembers of its context: the KV cache and the state of recurrent layers.

The rules are those of llama.cpp: ``create_memory`` in ``llama-model.cpp``, ``llama-hparams.cpp``,
``llama-kv-cache*.cpp``, ``llama-memory-*.cpp`` and ``load_arch_hparams`` of each architecture.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from armload.core.values import Count, Value
from armload.models.metadata import FLOAT_BYTES, KV_BYTES_PER_VALUE, Metadata

ROUNDING_TOKENS = 256
"""llama.cpp rounds the context of a sequence, and the cells of a window, up to this."""

USUAL_MICRO_BATCH_TOKENS = 512


class ContextMemory(Value):
    """What a model remembers of its context.

    Attributes:
        key_values: numbers in the keys of one token, in the layers that look back to the start.
        value_values: likewise in the values; keys and values share them in latent attention.
        window_tokens: that the other layers look back at most; 0 when there are none.
        window_key_values, window_value_values: as above, in those layers.
        window_layers: how many there are.
        sharing_layers: that use the keys and values of others.
        state_bytes: of the recurrent layers, for each sequence, however long it is.
        recurrent_layers: how many there are.
        prediction_values: numbers in the keys and values of one token in the layers that predict
            further tokens, where those are used.
        is_exact: llama.cpp allocates this much; else at least as much.
    """

    key_values: Count = 0
    value_values: Count = 0
    window_tokens: Count = 0
    window_key_values: Count = 0
    window_value_values: Count = 0
    window_layers: Count = 0
    sharing_layers: Count = 0
    state_bytes: Count = 0
    recurrent_layers: Count = 0
    prediction_values: Count = 0
    is_exact: bool = True

    @property
    def bytes_per_token(self) -> int:
        """That each token takes at 16 bits a value, once the windows are full."""
        return (self.key_values + self.value_values) * KV_BYTES_PER_VALUE

    def size_bytes(
        self,
        context_tokens: int,
        *,
        sequences: int = 1,
        is_shared: bool = False,
        micro_batch_tokens: int = USUAL_MICRO_BATCH_TOKENS,
        kv_shares: tuple[float, float] = (1.0, 1.0),
    ) -> int:
        """Return the bytes that the engine allocates.

        Args:
            context_tokens: of each sequence.
            is_shared: all sequences share one cache (``--kv-unified``).
            micro_batch_tokens: a window has room for one more micro-batch.
            kv_shares: of the sizes of keys and values in 16 bits.
        """
        caches, in_each = (1, sequences) if is_shared else (sequences, 1)
        cells = _rounded(context_tokens * in_each)
        windowed = self.window_tokens * in_each + micro_batch_tokens
        window_cells = _rounded(min(cells, windowed))
        keys = cells * self.key_values + window_cells * self.window_key_values
        values = cells * self.value_values + window_cells * self.window_value_values
        in_16_bits = keys * kv_shares[0] + values * kv_shares[1]
        cache_bytes = round(caches * in_16_bits * KV_BYTES_PER_VALUE)
        return cache_bytes + sequences * self.state_bytes

    @property
    def without_rollback(self) -> ContextMemory:
        """What of it does not hold an earlier moment of a sequence: windows and states.

        Of these, a server has to keep copies (checkpoints) to go back to the beginning that two
        prompts share.
        """
        return self.model_copy(update={"key_values": 0, "value_values": 0})


class KvCache(Value):
    """What a program keeps of the context, by the context's length.

    Attributes:
        memory: of the model; without it, it grows in proportion to the context.
        kv_shares, micro_batch_tokens, is_shared: as for ``ContextMemory.size_bytes``.
    """

    memory: ContextMemory = ContextMemory(key_values=1)
    kv_shares: tuple[float, float] = (1.0, 1.0)
    micro_batch_tokens: int = USUAL_MICRO_BATCH_TOKENS
    is_shared: bool = False

    def size_bytes(self, context_tokens: int, sequences: int = 1) -> int:
        """Return the bytes for so many sequences, each with such a context."""
        return self.memory.size_bytes(
            context_tokens,
            sequences=sequences,
            is_shared=self.is_shared,
            micro_batch_tokens=self.micro_batch_tokens,
            kv_shares=self.kv_shares,
        )


def _rounded(tokens: int) -> int:
    return -(-tokens // ROUNDING_TOKENS) * ROUNDING_TOKENS


_NAMES_WITHOUT_CACHE = """
bert modern-bert nomic-bert nomic-bert-moe neo-bert jina-bert-v2 jina-bert-v3 eurobert
gemma-embedding wavtokenizer-dec dream llada llada-moe rnd1
"""
_NAMES_OF_PLAIN = """
apertus arcee arctic baichuan bailingmoe bailingmoe2 bitnet bloom chatglm codeshell cogvlm
command-r dbrx deci deepseek dots1 ernie4_5 ernie4_5-moe exaone falcon gemma glm4 glm4moe gpt2
gptneox granite granitemoe grok grovemoe hrm_text hunyuan-dense hunyuan-moe hunyuan_vl hy_v3
internlm2 jais jais2 llama maincoder minicpm minicpm3 minimax-m2 mistral3 mpt nanbeige nemotron
olmo olmoe openelm orion paddleocr pangu-embedded phi2 phi3 phimoe plamo plm pockettts qwen qwen2
qwen2moe qwen2vl qwen3 qwen3moe qwen3tts qwen3vl qwen3vlmoe refact seed_oss smollm3 stablelm
starcoder starcoder2 talkie xverse
"""
_NO_CACHE = frozenset(_NAMES_WITHOUT_CACHE.split())
_PLAIN = frozenset(_NAMES_OF_PLAIN.split())


@dataclass(frozen=True, kw_only=True)
class _Windows:
    """Which layers look back at a window only, where the file does not list them.

    Attributes:
        every: the last of so many layers looks back to the start; 0 lets none do so.
        is_first: it is the first of them instead.
        tokens: of the window, where the file does not say.
        is_fixed: whatever the file says, except 0.
    """

    every: int = 0
    is_first: bool = False
    tokens: int = 0
    is_fixed: bool = False


_WINDOWS = {
    "afmoe": _Windows(every=4),
    "cohere2": _Windows(every=4),
    "cohere2moe": _Windows(every=4, is_first=True),
    "dots3note": _Windows(),
    "exaone-moe": _Windows(every=4, tokens=128),
    "exaone4": _Windows(every=4, tokens=4096),
    "gemma2": _Windows(every=2, tokens=4096),
    "gemma3": _Windows(every=6),
    "gemma3n": _Windows(every=5),
    "gemma4": _Windows(),
    "gpt-oss": _Windows(every=2),
    "granite_swa": _Windows(),
    "laguna": _Windows(every=4, is_first=True),
    "lfm2": _Windows(),
    "llama4": _Windows(every=4, tokens=8192, is_fixed=True),
    "maple": _Windows(),
    "mellum": _Windows(every=4),
    "mimo2": _Windows(),
    "muse-glimmer": _Windows(every=4),
    "olmo2": _Windows(every=4),
    "plamo3": _Windows(every=8),
    "smallthinker": _Windows(every=4, is_first=True, tokens=4096, is_fixed=True),
    "spark2_5": _Windows(),
    "step35": _Windows(),
}
_EXAONE4_LAYERS_WITH_WINDOWS = 64
_GEMMA3N_LAYERS_WITH_CACHE = 20

_RECURRENT = frozenset(["mamba", "mamba2", "rwkv6", "rwkv6qwen2", "rwkv7", "arwkv7"])
_FULL_ATTENTION_EVERY = {
    "qwen3next": 4,
    "qwen35": 4,
    "qwen35moe": 4,
    "qwen4exp": 4,
    "minimax-01": 8,
}
_KDA = frozenset(["kimi-linear", "kimi-k3", "bailingmoe3", "glm5-next"])
_NEMOTRON = frozenset(("nemotron_h", "nemotron_h_moe"))
_NO_HEADS_IS_RECURRENT = _KDA | frozenset(["jamba", "plamo2", "granitehybrid", "lfm2", "lfm2moe"])
_BOTH_IN_EACH_LAYER = frozenset(("falcon-h1",))
_HYBRID = _NO_HEADS_IS_RECURRENT | _NEMOTRON | _BOTH_IN_EACH_LAYER | {*_FULL_ATTENTION_EVERY}
_ONE_GROUP_OF_STATES = frozenset(("mamba", "jamba"))

_LATENT = _KDA | frozenset(["deepseek2", "deepseek32", "dots3note", "glm-dsa", "hy_v4", "mistral4"])
_INDEXED = frozenset(["deepseek32", "glm-dsa", "hy_v4", "minimax-m3"])
_CACHES_PREDICTION_LAYERS = (_HYBRID - {*_FULL_ATTENTION_EVERY, "glm5-next"}) | {
    "hy_v4",
    "minimax-m3",
}
_MORE_THAN_COUNTED = frozenset(["deepseek4", "dots3note", "glm5-next", "qwen4exp"])
_KNOWN = (
    _NO_CACHE | _PLAIN | {*_WINDOWS} | _RECURRENT | _HYBRID | _LATENT | _INDEXED
) - _MORE_THAN_COUNTED

_SAVES_MEMORY = (
    "attention.compress_ratios",
    "attention.kv_lora_rank",
    "attention.recurrent_layers",
    "attention.shared_kv_layers",
    "full_attention_interval",
    "kda.head_dim",
    "shortconv.l_cache",
    "ssm.state_size",
    "wkv.head_size",
)
"""What an unknown architecture with one of these keys caches of a token may be next to nothing."""


def context_memory(metadata: Metadata) -> ContextMemory:
    """Return what a model remembers of its context.

    Of an architecture that is not known, the sizes are a lower bound.
    """
    architecture = metadata.architecture
    if architecture in _NO_CACHE:
        return ContextMemory()
    if architecture == "deepseek4" or (
        architecture not in _KNOWN | _MORE_THAN_COUNTED
        and any(metadata.has(key) for key in _SAVES_MEMORY)
    ):
        return ContextMemory(is_exact=False)
    recurrent = recurrent_layers(metadata)
    window_tokens, windowed = _windowed(metadata, recurrent)
    key_values = value_values = window_key_values = window_value_values = 0
    is_latent = _is_latent(metadata)
    prediction_width = metadata.head_widths[0] if is_latent else sum(metadata.head_widths)
    for layer in _attention_layers(metadata, recurrent):
        heads, is_windowed = metadata.kv_heads[layer % metadata.layers], windowed[layer]
        key, value = (heads * width for width in _widths(metadata, is_windowed=is_windowed))
        if is_latent:
            value = 0
        if is_windowed:
            window_key_values, window_value_values = (
                window_key_values + key,
                window_value_values + value,
            )
        else:
            key_values, value_values = key_values + key, value_values + value
    if architecture in _INDEXED:
        indexed = _indexed_layers(metadata) * metadata.number("attention.indexer.key_length", 0)
        key_values += indexed
        if not is_latent and indexed:
            value_values += _indexed_layers(metadata) * metadata.head_widths[1]
    return ContextMemory(
        key_values=key_values,
        value_values=value_values,
        window_tokens=window_tokens,
        window_key_values=window_key_values,
        window_value_values=window_value_values,
        window_layers=sum(windowed[: metadata.trunk_layers]),
        sharing_layers=_sharing_layers(metadata),
        state_bytes=len(recurrent) * _state_values(metadata) * FLOAT_BYTES,
        recurrent_layers=len(recurrent),
        prediction_values=prediction_width * sum(metadata.kv_heads[metadata.trunk_layers :]),
        is_exact=architecture in _KNOWN,
    )


def recurrent_layers(metadata: Metadata) -> frozenset[int]:
    """Return the numbers of the layers that keep a state instead of keys and values, or beside."""
    architecture, layers = metadata.architecture, range(metadata.trunk_layers)
    if architecture in _RECURRENT | _BOTH_IN_EACH_LAYER:
        return frozenset(layers)
    if architecture in _NO_HEADS_IS_RECURRENT:
        return frozenset(layer for layer in layers if not metadata.kv_heads[layer])
    if architecture in _NEMOTRON:
        inner = metadata.by_layer("feed_forward_length", 0)
        return frozenset(
            layer for layer in layers if not metadata.kv_heads[layer] and not inner[layer]
        )
    if architecture not in _FULL_ATTENTION_EVERY:
        return frozenset()
    if metadata.has("attention.recurrent_layers"):
        flags = metadata.by_layer("attention.recurrent_layers", 0)
        return frozenset(layer for layer in layers if flags[layer])
    every = metadata.number("full_attention_interval", _FULL_ATTENTION_EVERY[architecture])
    return frozenset(layer for layer in layers if every and (layer + 1) % every)


def _attention_layers(metadata: Metadata, recurrent: frozenset[int]) -> Sequence[int]:
    """Return the numbers of the layers that have keys and values of their own."""
    architecture = metadata.architecture
    if architecture in _RECURRENT:
        return ()
    if architecture in _BOTH_IN_EACH_LAYER:
        return range(metadata.layers)
    layers: Sequence[int] = range(
        metadata.layers if architecture in _CACHES_PREDICTION_LAYERS else metadata.trunk_layers
    )
    if architecture in _NEMOTRON:
        inner = metadata.by_layer("feed_forward_length", 0)
        layers = [layer for layer in layers if not inner[layer]]
    elif architecture == "nanbeige":
        layers = range(metadata.layers * metadata.number("num_loops", 1))
    else:
        layers = layers[: max(0, len(layers) - _sharing_layers(metadata))]
    return [layer for layer in layers if layer not in recurrent]


def _sharing_layers(metadata: Metadata) -> int:
    """Return how many layers at the end use the keys and values of earlier ones."""
    if metadata.architecture == "gemma3n":
        return max(0, metadata.layers - _GEMMA3N_LAYERS_WITH_CACHE)
    if metadata.architecture == "gemma4":
        return min(metadata.layers, metadata.number("attention.shared_kv_layers", 0))
    return 0


def _windowed(metadata: Metadata, recurrent: frozenset[int]) -> tuple[int, Sequence[bool]]:
    """Return the window, and for each layer whether it looks back no further."""
    architecture, trunk = metadata.architecture, metadata.trunk_layers
    none = [False] * (metadata.layers * metadata.number("num_loops", 1))
    stated = metadata.number("attention.sliding_window", 0)
    if architecture not in _KNOWN | _MORE_THAN_COUNTED:
        return stated, [bool(stated)] * len(none)
    rule = _WINDOWS.get(architecture)
    if rule is None or (architecture == "exaone4" and trunk != _EXAONE4_LAYERS_WITH_WINDOWS):
        return 0, none
    if not metadata.has("attention.sliding_window"):
        stated = 0 if architecture == "smallthinker" else rule.tokens
    tokens = rule.tokens if rule.is_fixed and stated else stated
    if not tokens:
        return 0, none
    if architecture == "lfm2":
        flags = [layer not in recurrent for layer in range(trunk)]
    elif metadata.is_list("attention.sliding_window_pattern"):
        flags = [bool(each) for each in metadata.by_layer("attention.sliding_window_pattern")]
    else:
        every = metadata.number("attention.sliding_window_pattern", rule.every)
        full = 0 if rule.is_first else every - 1
        flags = [not every or layer % every != full for layer in range(trunk)]
    return tokens, [*flags[:trunk], *none[trunk:]]


def _widths(metadata: Metadata, *, is_windowed: bool) -> tuple[int, int]:
    key, value = metadata.head_widths
    if not is_windowed:
        return key, value
    return (
        metadata.number("attention.key_length_swa", key),
        metadata.number("attention.value_length_swa", value),
    )


def _is_latent(metadata: Metadata) -> bool:
    """Say whether only one compressed vector of each token is kept (MLA)."""
    widths = ("attention.key_length_mla", "attention.value_length_mla")
    return metadata.architecture in _LATENT and all(metadata.number(key, 0) for key in widths)


def _indexed_layers(metadata: Metadata) -> int:
    """Return how many layers also keep the keys by which they choose where to look."""
    architecture, trunk = metadata.architecture, metadata.trunk_layers
    if architecture == "minimax-m3":
        return max(0, metadata.layers - metadata.number("leading_dense_block_count", 0))
    if architecture == "hy_v4" and not metadata.number("attention.indexer.top_k", 0):
        return 0
    if architecture == "deepseek32":
        return trunk
    return sum(map(bool, metadata.by_layer("attention.indexer.types", 0)[:trunk]))


def _state_values(metadata: Metadata) -> int:
    """Return the numbers in the state of one recurrent layer.

    Source: ``n_embd_r`` and ``n_embd_s`` in ``llama-hparams.cpp``.
    """
    architecture, width = metadata.architecture, metadata.number("embedding_length", 0)
    heads, kernel = (
        metadata.number("attention.head_count", 0),
        metadata.number("ssm.conv_kernel", 0),
    )
    if architecture in _RECURRENT and architecture not in ("mamba", "mamba2"):
        return width * (metadata.number("token_shift_count", 2) + metadata.number("wkv.head_size"))
    if architecture in ("lfm2", "lfm2moe"):
        return width * (metadata.number("shortconv.l_cache") - 1)
    if architecture in _KDA:
        head = metadata.number("kda.head_dim")
        return heads * head * (3 * (kernel - 1 if kernel else 3) + head)
    if architecture == "minimax-01":
        return heads * metadata.head_widths[0] ** 2
    inner, state = metadata.number("ssm.inner_size", 0), metadata.number("ssm.state_size", 0)
    groups = 0 if architecture in _ONE_GROUP_OF_STATES else metadata.number("ssm.group_count", 0)
    return max(0, kernel - 1) * (inner + 2 * groups * state) + state * inner
