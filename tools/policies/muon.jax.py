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


def muon_updates(updates, newton_schulz, factor="rms_factor"):
    """Returns the steps of Muon for a tree of updates (momenta): every matrix by newton_schulz, times its factor."""
    return jax.tree_util.tree_map_with_path(
        lambda path, x: each_matrix(policy_of(path), x, lambda y, one: newton_schulz(y) * one[factor]), updates
    )
