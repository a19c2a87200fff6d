"""Train the word problems' model on this machine's CPU, and write it as GGUF.

    python -m training.word_problems.train --folder /tmp/word-problems

The arguments determine the data and the initial weights. The checkpoint is written every
``--every`` steps; the same command continues from it.
"""

from __future__ import annotations

import argparse
import time
from functools import partial
from itertools import islice
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np

from armload.evaluation.word_problems import problems
from training.word_problems.examples import (
    Batch,
    batches,
    examples,
    learned_vocabulary,
    packed,
    plain_example,
)
from training.word_problems.export import write_model
from training.word_problems.model import Parameters, initial, loss, mistakes, shape_for
from training.word_problems.optimiser import Moments, no_moments, stepped
from training.word_problems.vocabulary import Encoder

State = tuple[int, Parameters, Moments]
"""Steps done, weights, averages: what a checkpoint holds."""

SEED = 1
HELD_OUT_PROBLEMS = 64
DRILLS_AT_FIRST, DRILLS_LATER = 0.9, 0.1


def main() -> None:
    """Read the arguments, train, and write ``word-problems-F16.gguf``."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--folder", type=Path, required=True, help="for checkpoint and model")
    parser.add_argument("--steps", type=int, default=600, help="batches to learn from")
    parser.add_argument("--drill-steps", type=int, default=100, help="first steps, of equations")
    parser.add_argument("--rows", type=int, default=8, help="rows of a batch, 256 tokens each")
    parser.add_argument("--rate", type=float, default=0.02, help="learning rate of the matrices")
    parser.add_argument("--every", type=int, default=25, help="steps from checkpoint to checkpoint")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    train(arguments)


def train(arguments: argparse.Namespace) -> None:
    """Train, or continue to train, and write the model after each checkpoint."""
    vocabulary = learned_vocabulary()
    encode = Encoder(vocabulary)
    shape = shape_for(len(vocabulary.tokens))
    held_out = [plain_example(each, encode) for each in problems("test", HELD_OUT_PROBLEMS, SEED)]
    judged = packed([[each] for each in held_out])
    checkpoint = arguments.folder / "checkpoint.npz"
    parameters = initial(shape, SEED)
    done, parameters, moments = _restored(checkpoint, (0, parameters, no_moments(parameters)))
    done = int(done)
    print(f"{sum(each.size for each in parameters.values()):,} weights; {done} steps done")

    def step(
        parameters: Parameters, moments: Moments, batch: Batch, rate: jax.Array
    ) -> tuple[Parameters, Moments, jax.Array]:
        value, gradients = jax.value_and_grad(partial(loss, shape=shape))(parameters, batch=batch)
        parameters, moments = stepped(parameters, gradients, moments, rate)
        return parameters, moments, value

    fast_step = jax.jit(step)
    wrong = jax.jit(partial(mistakes, shape=shape))
    started, losses = time.monotonic(), []
    while done < arguments.steps:
        drilling = done < arguments.drill_steps
        drills = DRILLS_AT_FIRST if drilling else DRILLS_LATER
        # Each stretch has its own seed, so that a continued training sees what it would have seen.
        stretch = batches(examples(SEED * 1_000_003 + done, encode, drills), arguments.rows)
        for batch in islice(stretch, arguments.every):
            rate = jnp.float32(arguments.rate * _schedule(done, arguments.steps))
            parameters, moments, value = fast_step(parameters, moments, batch, rate)
            losses.append(float(value))
            done += 1
        _save(checkpoint, (done, parameters, moments))
        write_model(arguments.folder / "word-problems-F16.gguf", shape, vocabulary, parameters)
        whole = np.asarray(wrong(parameters, batch=judged)).sum(axis=1) == 0
        print(
            f"step {done}: loss {np.mean(losses[-arguments.every :]):.4f}, "
            f"held out {whole.mean():.1%} right, {time.monotonic() - started:.0f} s",
            flush=True,
        )


def _schedule(done: int, steps: int) -> float:
    """Return the factor on the learning rate: a short rise, a plateau, a fall to zero."""
    return min(1.0, (done + 1) / 50, (steps - done) / (0.5 * steps))


def _save(path: Path, state: State) -> None:
    beside = path.with_suffix(".new.npz")
    np.savez(beside, *(np.asarray(each) for each in jax.tree.leaves(state)))
    beside.replace(path)


def _restored(path: Path, state: State) -> State:
    if not path.is_file():
        return state
    leaves, structure = jax.tree.flatten(state)
    with np.load(path) as stored:
        known = [stored[f"arr_{number}"] for number in range(len(leaves))]
    restored: State = jax.tree.unflatten(structure, known)
    return restored


if __name__ == "__main__":
    main()
