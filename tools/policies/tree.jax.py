def policy_of(path):
    """Returns the policy of the leaf at a path of a tree, whose keys join to a name of POLICY with '.' or '/' between."""
    keys = [str(getattr(key, "key", getattr(key, "name", getattr(key, "idx", key)))) for key in path]
    for between in "./":
        if between.join(keys) in POLICY:
            return POLICY[between.join(keys)]
    raise KeyError(".".join(keys))
