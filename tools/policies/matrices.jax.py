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
