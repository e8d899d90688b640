import jax
import jax.numpy as jnp

POLICY = {}


def policy_of(path):
    """Returns the policy of the leaf at a path of a tree, whose keys join to a name of POLICY with '.' or '/' between."""
    keys = [str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in path]
    for between in "./":
        if between.join(keys) in POLICY:
            return POLICY[between.join(keys)]
    raise KeyError(".".join(keys))


def labels(params):
    """Returns the groups of a tree of parameters, for optax.multi_transform(TRANSFORMS, labels)."""
    return jax.tree_util.tree_map_with_path(lambda path, _: policy_of(path)["group"], params)


def each_matrix(policy, x, change):
    """Returns x with change(matrix, policy of the matrix) in place of each of its matrices, [count, rows, columns]."""
    for one in policy["matrices"]:
        index = [i for a, b in one["ranges"] for i in range(a, b)]
        part = jnp.take(x, jnp.asarray(index), axis=one["axis"]).transpose(one["order"])
        new = change(part.reshape(one["count"], one["rows"], one["columns"]), one)
        back = [one["order"].index(a) for a in range(x.ndim)]
        at = (slice(None),) * one["axis"] + (jnp.asarray(index),)
        x = x.at[at].set(new.reshape(part.shape).transpose(back))
    return x


def project(policy, x):
    """Returns x with every matrix at its radius."""
    return each_matrix(policy, x, lambda y, one: y * (one["radius"] / jnp.linalg.norm(y, axis=(1, 2), keepdims=True)))


def hyperball_step(params, updates, rate):
    """Returns the parameters after a step along updates of another optimizer, whose matrices get the radius, too."""
    def step(path, x, update):
        policy = policy_of(path)
        return project(policy, x - rate * project(policy, update)) if policy["matrices"] else x - rate * update
    return jax.tree_util.tree_map_with_path(step, params, updates)
