import jax

POLICY = {}


# include tree


def decay_mask(params, tables=False):
    """Returns the mask of optax.adamw: true for kernels, and for tables if asked."""
    groups = ("decay", "table") if tables else ("decay",)
    return jax.tree_util.tree_map_with_path(lambda path, _: policy_of(path)["group"] in groups, params)
