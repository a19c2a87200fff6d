"""What a comparison needs of a run."""

from __future__ import annotations

import math

from armload.analysis.engine_options import context_tokens, kv_type, other_words
from armload.analysis.equal_boards import equalities
from armload.analysis.repeats import counts, is_disturbed
from armload.analysis.run import Run
from armload.analysis.sanity import doubts_about_text
from armload.analysis.summary import prompting, token_times
from armload.core.options import declared_options
from armload.engines.llama_cpp import repacked
from armload.engines.measurement import Measurement, Method, Work
from armload.engines.plan import WITHOUT_EFFECT, Plan


def measurement_of(run: Run) -> Measurement:
    """Return what a comparison needs of a run."""
    work, method = _watched(run) if run.plan is None else _planned(run, run.plan)
    times = tuple(token_times(run.trace, run.steps))
    is_text_known = bool(run.text) or not (run.is_excerpt or run.plan is None)
    found = run.prediction
    return Measurement(
        name=run.id,
        work=work,
        method=method,
        is_watched=run.plan is None and run.watched is not None,
        weight_type=run.model.quantisation,
        equalities=equalities(run),
        ttft_s=_positive(run.summary.ttft_s),
        prefill_tps=_positive(run.summary.prefill_tps),
        decode_tps=_positive(run.summary.decode_tps),
        token_s=times if min(times, default=0.0) > 0 else (),
        max_rss_bytes=run.memory.max_rss_bytes if run.memory else None,
        reported=run.reported,
        text=run.text if is_text_known else None,
        garbage=_garbage(run),
        doubts=run.verdict.reasons,
        is_judged=run.verdict.valid or (bool(run.verdict.findings) and counts(run)),
        is_disturbed=is_disturbed(run),
        predicted_ttft_s=found.ttft_s.value if found and found.media and found.ttft_s else None,
        predicted_token_s=found.token_s.value if found and found.token_s else None,
        joules_per_token=run.energy.joules_per_token if run.energy else None,
        energy_basis=run.energy.basis if run.energy else None,
    )


def _planned(run: Run, plan: Plan) -> tuple[Work, Method]:
    prompt_tokens = sum(step.prompt_tokens for step in prompting(run.steps))
    work = Work(
        model=run.model.name,
        model_sha256=run.model.sha256,
        board=run.board.name,
        is_emulated=run.board.workstation is not None,
        prompt=None if run.is_excerpt and not plan.prompt else plan.prompt,
        prompt_tokens=prompt_tokens or None,
        output_tokens=plan.n_predict,
        filled_tokens=plan.depth_tokens,
        context_tokens=context_tokens(run.command) or plan.context_tokens,
        media=", ".join(each.sha256[:12] for each in (*run.images, run.audio) if each),
        kv_type="/".join(plan.kv_types) if plan.kv_types else kv_type(plan.extra),
        sampling=f"temperature {plan.temperature:g}, seed {plan.seed}"
        + (", may end" if plan.stop_at_end else ""),
    )
    method = Method(
        engine=f"{run.binary.program} of {run.binary.engine}, {run.binary.compiler}, "
        f"build {run.binary.build_id}",
        threads=run.trace.threads if run.trace else plan.threads,
        repacked=repacked(run.command),
        options=" ".join([*_options(plan, run), *other_words(plan.extra)]),
        memory_mhz=_memory_mhz(run),
    )
    return work, method


def _watched(run: Run) -> tuple[Work, Method]:
    work = Work(
        model=run.model.name or None,
        model_sha256=run.model.sha256,
        model_format="GGUF" if run.model.name.endswith(".gguf") else "other",
        board=run.board.name,
        is_emulated=run.board.workstation is not None,
        prompt_tokens=run.summary.prefill_tokens,
        output_tokens=_written_tokens(run),
    )
    method = Method(
        engine=f"{run.binary.program} {run.binary.sha256[:12]}".rstrip(),
        options=" ".join(run.watched.words[1:]) if run.watched else "",
        memory_mhz=_memory_mhz(run),
    )
    return work, method


def _written_tokens(run: Run) -> int | None:
    tokens = run.summary.decode_tokens
    if tokens is None or run.watched is None or run.watched.reader.first_token_counts:
        return tokens
    return tokens + 1


_COMPARED_APART = frozenset(
    (
        *("engine", "prompt", "prompt_tokens", "n_predict", "temperature", "seed", "stop_at_end"),
        *("image", "audio", "mmproj"),
        *("threads", "context_tokens", "kv_type", "weights", "resident_bytes"),
        "depth_tokens",
        *WITHOUT_EFFECT,
    )
)
"""Fields of a plan that a comparison has in its work or method, or that change nothing."""


def _options(plan: Plan, run: Run) -> list[str]:
    """Return the options beyond threads, as on the command line."""
    options = {
        each.name: getattr(plan, each.field)
        for each in declared_options(Plan)
        if each.field not in _COMPARED_APART
        and getattr(plan, each.field) != Plan.model_fields[each.field].default
    }
    options["governor"] = run.governor
    # Files of one name may differ.
    options["lora"] = ", ".join(each.called for each in run.model.adapters) or None
    return [f"{name} {value}" for name, value in options.items() if value not in (None, False)]


def _memory_mhz(run: Run) -> int | None:
    clocks = [each.mean_hz for each in run.device_clocks if each.kind == "memory"]
    return round(clocks[0] / 1e6) if clocks else None


def _positive(figure: float | None) -> float | None:
    # A record that was changed by hand may hold anything; no ratio is made of it.
    return figure if figure is not None and 0 < figure < math.inf else None


def _garbage(run: Run) -> str:
    if run.exit.status != 0:
        return run.exit.meaning
    if _lacks_text(run) or (run.watched is not None and not run.watched.reader.has_text):
        return ""
    of_words = run.plan is not None and run.plan.prompt_tokens is not None
    return " ".join(each.sentence for each in doubts_about_text(run.text, of_words=of_words))


def _lacks_text(run: Run) -> bool:
    embeds = run.summary.texts is not None
    served = run.plan is None and run.watched is None
    return embeds or ((run.is_excerpt or served) and not run.text)
