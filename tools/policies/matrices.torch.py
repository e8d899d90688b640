def named_groups(model):
    """Returns the parameters of a torch.nn.Module by group: {group: [(name, parameter), ...]}."""
    groups = {}
    for name, parameter in model.named_parameters():
        groups.setdefault(POLICY[name]["group"], []).append((name, parameter))
    return groups


def each_matrix(name, x, change):
    """Returns x with change(matrix, policy of the matrix) in place of each of its matrices, [count, rows, columns]."""
    out = x.clone()
    for one in POLICY[name]["matrices"]:
        index = torch.cat([torch.arange(a, b, device=x.device) for a, b in one["ranges"]])
        part = x.index_select(one["axis"], index).permute(one["order"])
        new = change(part.reshape(one["count"], one["rows"], one["columns"]), one)
        back = [one["order"].index(a) for a in range(x.dim())]
        out.index_copy_(one["axis"], index, new.reshape(part.shape).permute(back))
    return out
