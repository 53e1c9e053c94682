"""Trains a small network data-parallel with NumPy, gradients summed by MPI's all-reduce.

Arguments: steps, file of the results, to which each rank appends its number.
"""

import hashlib
import json
import os
import sys
import time

os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "1"

import numpy as np
from mpi4py import MPI

LAYERS = (128, 512, 384, 10)
BATCH = 32  # of a rank
RATE = np.float32(0.05)
WARM_UP = 5  # steps that connect


def views(flat):
    """Weights and biases of each layer, as parts of one array."""
    parts, at = [], 0
    for a, b in zip(LAYERS, LAYERS[1:]):
        weights, bias = flat[at : at + a * b].reshape(a, b), flat[at + a * b : at + a * b + b]
        parts.append((weights, bias))
        at += a * b + b
    return parts


def gradient(parameters, into, x, y):
    """The loss; the gradients go into an array of the parameters' shape."""
    inputs = [x]
    for weights, bias in parameters[:-1]:
        inputs.append(np.maximum(inputs[-1] @ weights + bias, 0))
    weights, bias = parameters[-1]
    scores = inputs[-1] @ weights + bias
    scores -= scores.max(axis=1, keepdims=True)
    chances = np.exp(scores)
    chances /= chances.sum(axis=1, keepdims=True)
    rows = np.arange(len(y))
    loss = -np.log(chances[rows, y]).mean()
    chances[rows, y] -= 1
    back = chances / np.float32(len(y))
    for (weights, _), (into_weights, into_bias), given in zip(
        reversed(parameters), reversed(into), reversed(inputs)
    ):
        into_weights[:] = given.T @ back
        into_bias[:] = back.sum(axis=0)
        back = (back @ weights.T) * (given > 0)
    return loss


def main():
    steps, results = int(sys.argv[1]), sys.argv[2]
    world = MPI.COMM_WORLD
    rank, ranks = world.Get_rank(), world.Get_size()
    size = sum(a * b + b for a, b in zip(LAYERS, LAYERS[1:]))
    seeded = np.random.default_rng(1)
    flat = np.zeros(size, np.float32)
    parameters = views(flat)
    for weights, _ in parameters:
        weights[:] = seeded.standard_normal(weights.shape) * (2 / len(weights)) ** 0.5
    teacher = seeded.standard_normal((LAYERS[0], LAYERS[-1])).astype(np.float32)
    own = np.random.default_rng([2, rank])
    # The loss travels behind the gradients.
    message = np.zeros(size + 1, np.float32)
    into = views(message[:size])
    seen = {"begin_ns": 0, "us": [], "losses": []}
    for number in range(-WARM_UP, steps):
        x = own.standard_normal((BATCH, LAYERS[0])).astype(np.float32)
        y = (x @ teacher).argmax(axis=1)
        if number == 0:
            seen["begin_ns"] = time.monotonic_ns()
            with open(f"{results}-{rank}.begun", "w") as file:
                file.write(str(seen["begin_ns"]))
        begun = time.perf_counter()
        message[size] = gradient(parameters, into, x, y)
        world.Allreduce(MPI.IN_PLACE, message)
        flat -= message[:size] * (RATE / np.float32(ranks))
        if number >= 0:
            seen["us"].append((time.perf_counter() - begun) * 1e6)
            seen["losses"].append(float(message[size]) / ranks)
    seen["digest"] = hashlib.sha256(flat.tobytes()).hexdigest()
    seen["by"] = MPI.Get_library_version().split(",")[0] + ", mpi4py"
    with open(f"{results}-{rank}.part", "w") as file:
        json.dump(seen, file)
    os.rename(f"{results}-{rank}.part", f"{results}-{rank}")
    world.Barrier()


if __name__ == "__main__":
    main()
