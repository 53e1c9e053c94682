"""Trains a small network data-parallel with JAX, a process a host, gradients over Gloo.

Arguments: the coordinator, rank, ranks, steps, file of the results.
"""

import hashlib
import json
import os
import sys
import time

os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

LAYERS = (128, 512, 384, 10)
BATCH = 32  # of a rank
RATE = 0.05
WARM_UP = 5  # steps that compile and connect


def loss_of(parameters, x, y):
    for weights, bias in parameters[:-1]:
        x = jax.nn.relu(x @ weights + bias)
    weights, bias = parameters[-1]
    scores = jax.nn.log_softmax(x @ weights + bias)
    return -jnp.mean(jnp.take_along_axis(scores, y[:, None], axis=1))


@jax.jit
def step(parameters, x, y):
    loss, gradients = jax.value_and_grad(loss_of)(parameters, x, y)
    update = lambda p, g: p - RATE * g
    return jax.tree.map(update, parameters, gradients), loss


def main():
    coordinator, rank, ranks, steps, results = sys.argv[1:]
    rank, ranks, steps = int(rank), int(ranks), int(steps)
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(coordinator, ranks, rank)
    mesh = Mesh(np.array(jax.devices()), ("batch",))
    replicated = NamedSharding(mesh, PartitionSpec())
    shared = NamedSharding(mesh, PartitionSpec("batch"))
    seeded = np.random.default_rng(1)
    parameters = [
        (
            (seeded.standard_normal((a, b)) * (2 / a) ** 0.5).astype(np.float32),
            np.zeros(b, np.float32),
        )
        for a, b in zip(LAYERS, LAYERS[1:])
    ]
    parameters = jax.device_put(parameters, replicated)
    teacher = seeded.standard_normal((LAYERS[0], LAYERS[-1])).astype(np.float32)
    own = np.random.default_rng([2, rank])
    seen = {"begin_ns": 0, "us": [], "losses": []}
    for number in range(-WARM_UP, steps):
        x = own.standard_normal((BATCH, LAYERS[0])).astype(np.float32)
        y = (x @ teacher).argmax(axis=1).astype(np.int32)
        if number == 0:
            seen["begin_ns"] = time.monotonic_ns()
            with open(results + ".begun", "w") as file:
                file.write(str(seen["begin_ns"]))
        begun = time.perf_counter()
        x, y = (jax.make_array_from_process_local_data(shared, part) for part in (x, y))
        parameters, loss = step(parameters, x, y)
        jax.block_until_ready((parameters, loss))
        if number >= 0:
            seen["us"].append((time.perf_counter() - begun) * 1e6)
            seen["losses"].append(float(loss))
    digest = hashlib.sha256()
    for part in jax.tree.leaves(parameters):
        digest.update(np.asarray(part.addressable_data(0)).tobytes())
    seen["digest"] = digest.hexdigest()
    seen["by"] = f"JAX {jax.__version__}, Gloo"
    with open(results + ".part", "w") as file:
        json.dump(seen, file)
    os.rename(results + ".part", results)
    jax.distributed.shutdown()


if __name__ == "__main__":
    main()
