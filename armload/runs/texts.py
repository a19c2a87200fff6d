"""Texts that are embedded: as the continuation that is predicted for one, and what follows."""

from __future__ import annotations

from armload.analysis.compute import Compute
from armload.engines.embedding import EMBEDDED_TOKENS
from armload.engines.plan import Plan
from armload.engines.prediction import Prediction, TextForecast
from armload.models.model import Model


def embedding_of(plan: Plan, model: Model) -> Plan:
    """Return a plan that embeds, where the model can do nothing else."""
    if plan.embed is not None or not (model.embeds or model.ranks):
        return plan
    return plan.model_copy(update={"embed": 1})


def with_texts(found: Prediction, plan: Plan, compute: Compute | None) -> Prediction:
    """Replace the times of tokens by that of a text; of a model whose weights stay in memory.

    Args:
        plan: that embeds; another one changes nothing.
    """
    if plan.embed is None:
        return found
    tokens = plan.prompt_tokens or EMBEDDED_TOKENS
    text_s = None
    if compute is not None and found.verdict == "fits" and found.token_s is not None:
        # Each text attends to itself alone, and a pass takes no less than one for a token.
        alone = compute.model_copy(update={"token_s": compute.token_s * (1 / plan.embed)})
        text_s = alone.prompt_s(tokens)
    texts = TextForecast(tokens=tokens, at_a_time=plan.embed, text_s=text_s)
    return found.model_copy(update={"texts": texts, "token_s": None, "ttft_s": None})
