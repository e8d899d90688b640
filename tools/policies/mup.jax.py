import jax

POLICY = {}


# include tree


def multiplied(tree, key):
    """Returns a tree times the multipliers `key` of POLICY: initial values by "init", updates of Adam by "adam"."""
    return jax.tree_util.tree_map_with_path(lambda path, x: x * policy_of(path)[key], tree)


def scale_by_mup(key="adam"):
    """Returns a transformation of optax for the end of a chain, after Adam ("adam") or plain gradients ("sgd")."""
    import optax

    return optax.stateless(lambda updates, params: multiplied(updates, key))
