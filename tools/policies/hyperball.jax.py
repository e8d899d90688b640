import jax
import jax.numpy as jnp

POLICY = {}


# include tree


# include matrices


def project(policy, x):
    """Returns x with every matrix at its radius."""
    return each_matrix(policy, x, lambda y, one: y * (one["radius"] / jnp.linalg.norm(y, axis=(1, 2), keepdims=True)))


def hyperball_step(params, updates, rate):
    """Returns the parameters after a step along updates of another optimizer, whose matrices get the radius, too."""
    def step(path, x, update):
        policy = policy_of(path)
        return project(policy, x - rate * project(policy, update)) if policy["matrices"] else x - rate * update
    return jax.tree_util.tree_map_with_path(step, params, updates)
