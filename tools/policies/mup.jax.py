import jax

POLICY = {}


def policy_of(path):
    """Returns the policy of the leaf at a path of a tree, whose keys join to a name of POLICY with '.' or '/' between."""
    keys = [str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in path]
    for between in "./":
        if between.join(keys) in POLICY:
            return POLICY[between.join(keys)]
    raise KeyError(".".join(keys))


def multiplied(tree, key):
    """Returns a tree times the multipliers `key` of POLICY: initial values by "init", updates of Adam by "adam"."""
    return jax.tree_util.tree_map_with_path(lambda path, x: x * policy_of(path)[key], tree)


def scale_by_mup(key="adam"):
    """Returns a transformation of optax for the end of a chain, after Adam ("adam") or plain gradients ("sgd")."""
    import optax

    return optax.stateless(lambda updates, params: multiplied(updates, key))
