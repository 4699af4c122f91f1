"""Reference forms of the zoo's models of deep networks, cross layers, behaviour and tasks."""

import numpy as np

from zoo_field_models import fm
from zoo_parts import LENGTHS, PLACES, flat, sigmoid, softmax


def dnn(n):
    return n.mlp(n.features())


def wide_deep(n):
    return n.first_order() + n.mlp(n.features())


def deepfm(n):
    return fm(n) + n.mlp(n.features())


def cross(n, name, x0, x):
    """Wang et al. 2017, equation 3: x0 x^T w + b + x."""
    w = n.trained(name + "/weight/weight", 1, x.shape[1])[0]
    b = n.trained(name + "/bias/bias", x.shape[1])
    return np.einsum("bi,bj,j->bi", x0, x, w) + b + x


def crossed_and_deep(n, x0, x):
    """The logit of what the cross layers give and, beside it, the deep network over x0."""
    if n.options["hidden"]:
        x = np.concatenate([x, n.hidden("mlp", x0, n.options["hidden"])], axis=1)
    return n.linear("model/logit", x, 1)


def dcn(n):
    x0 = n.features()
    x = x0
    for k in range(1, n.option("cross_layers", 3) + 1):
        x = cross(n, f"cross/{k}", x0, x)
    return crossed_and_deep(n, x0, x)


def dcn_v2(n):
    """Wang et al. 2021, equations 1 and 2: x0 * (W x + b) + x, W of low rank being U V^T."""
    x0 = n.features()
    x, rank, size = x0, n.option("low_rank", 0), x0.shape[1]
    for k in range(1, n.option("cross_layers", 3) + 1):
        name = f"cross/{k}"
        if rank:
            u = n.trained(name + "/linear/weight", size, rank)
            v = n.trained(name + "/project/weight", rank, size)
            w = u @ v
        else:
            w = n.trained(name + "/linear/weight", size, size)
        x = x0 * (np.einsum("ij,bj->bi", w, x) + n.trained(name + "/linear/bias", size)) + x
    if n.option("structure", "parallel") == "stacked":
        return n.linear("model/logit", n.hidden("mlp", x, n.options["hidden"]), 1)
    return crossed_and_deep(n, x0, x)


def masknet(n):
    """Wang et al. 2021, equations 5 to 12. A block's mask is a network over the embeddings as they
    come, not normalised; it multiplies what the block reads: the normalised embeddings, or in the
    serial form the block before."""
    fields = n.all_vectors()
    embeddings = flat(fields)
    read = embeddings
    if n.option("embedding_norm", True):
        normal = n.layer_norm("mask/embedding_norm", fields, fields.shape[1:])
        read = flat(normal)

    def block(name, x, units):
        width = x.shape[1]
        inner = int(round(width * n.option("reduction_ratio", 1)))
        mask = n.linear(name + "/mask/aggregate", embeddings, inner)
        mask = n.activate(name + "/mask", mask, n.option("activation", "relu"))
        masked = n.linear(name + "/mask", mask, width) * x
        y = n.linear(name + "/linear", masked, units, bias=False)
        if n.option("layer_norm", True):
            y = n.layer_norm(name + "/layer_norm", y, (units,))
        return n.activate(name, y, n.option("activation", "relu"))

    if n.option("structure", "parallel") == "serial":
        x = read
        for k, units in enumerate(n.options["hidden"], 1):
            x = block(f"block/{k}", x, units)
        return n.linear("model/logit", x, 1)
    blocks = [
        block(f"block/{k}", read, n.options["block_dim"])
        for k in range(1, n.option("blocks", 3) + 1)
    ]
    return n.mlp(np.concatenate(blocks, axis=1))


def edcn(n):
    """Chen et al. 2021: before each layer both sides take the shared vector through gates of their
    own, a softmax over fields of g / temperature (the regulation module, with batch normalisation
    behind it where gate_batch_norm says so, or else where the deep layers have it); a cross and a
    deep layer; their bridge is shared with the next. The logit reads the last cross, deep and
    bridge."""
    fields = n.all_vectors()
    count, dim = fields.shape[1:]
    shared = flat(fields)

    def regulated(name, x):
        if not n.option("regulation", True):
            return x
        gates = n.trained(name + "/gates/value", count, 1)[:, 0] / n.option("temperature", 1)
        gates = softmax(gates, axis=0)
        x = x * np.repeat(gates, dim)
        norm = n.option("gate_batch_norm", n.option("batch_norm", False))
        return n.batch_norm(name + "/batch_norm", x) if norm else x

    x0 = None
    for k in range(1, n.option("cross_layers", 3) + 1):
        x, deep = regulated(f"cross_gate/{k}", shared), regulated(f"deep_gate/{k}", shared)
        if x0 is None:
            x0 = x
        x = cross(n, f"cross/{k}", x0, x)
        deep = n.hidden(f"deep/{k}", deep, [count * dim])
        shared = x + deep if n.option("bridge", "hadamard") == "add" else x * deep
    return n.linear("model/logit", np.concatenate([x, deep, shared], axis=1), 1)


def behaviour(n):
    """The target's row and the sequence's, each side by side over the columns."""
    targets, sequences = n.options["target"], n.options["sequence"]
    if isinstance(targets, str):
        targets, sequences = [targets], [sequences]
    fields = [int(target[1:]) for target in targets]  # c1 is field 1
    target = [n.table(n.sequences[s])[:, f] for s, f in zip(sequences, fields)]
    rows = [n.sequence(s) for s in sequences]
    return np.concatenate(target, axis=1), np.concatenate(rows, axis=2)


def din(n):
    """Zhou et al. 2018, equation 3 and section 4.3: v_U = sum_j a(e_j, v_A) e_j, where a reads the
    target, the behaviour, their difference and their product."""
    target, rows = behaviour(n)
    scores = np.zeros((len(LENGTHS), PLACES))
    for t in range(PLACES):
        x = np.concatenate([target, rows[:, t], target - rows[:, t], target * rows[:, t]], axis=1)
        for k, units in enumerate(n.options["attention"], 1):
            name = f"attention/{k}"
            x = n.linear(name + "/linear", x, units)
            x = n.activate(name, x, n.option("attention_activation", "sigmoid"))
        scores[:, t] = n.linear("attention/score", x, 1)[:, 0]
    interest = np.zeros_like(target)
    for b, length in enumerate(LENGTHS):
        weights = scores[b, :length]
        if n.option("attention_softmax", False) and length:
            weights = softmax(weights, axis=0)
        interest[b] = weights @ rows[b, :length]
    return n.mlp(np.concatenate([n.features(), interest], axis=1), "dice")


def gates(n, name, x, h):
    """Of one step: the new state's share, 1 - z as z is ONNX's share of the old one, and the
    candidate."""
    units = len(h)
    w = n.trained(name + "/weight", 3, units, len(x))
    u = n.trained(name + "/recurrence", 3, units, units)
    b, c = n.trained(name + "/bias", 2, 3, units)
    z = sigmoid(w[0] @ x + b[0] + u[0] @ h + c[0])
    r = sigmoid(w[1] @ x + b[1] + u[1] @ h + c[1])
    return 1 - z, np.tanh(w[2] @ x + b[2] + r * (u[2] @ h + c[2]))


def dien(n):
    """Zhou et al. 2019: interests h_t are a GRU's states; attention is the softmax over t of
    h_t W e_a (equation 5); AUGRU's update gate is attention times the GRU's (section 4.3)."""
    target, rows = behaviour(n)
    units = n.option("units", 0) or rows.shape[2]
    evolution = n.option("evolution", 0) or units
    near = n.linear("attention/target", target, units, bias=False)
    final = np.zeros((len(LENGTHS), evolution))
    for b, length in enumerate(LENGTHS):
        h, interests = np.zeros(units), []
        for t in range(length):
            update, candidate = gates(n, "interest/gru", rows[b, t], h)
            h = (1 - update) * h + update * candidate
            interests.append(h)
        if not length:
            continue
        attention = softmax(np.array([i @ near[b] for i in interests]), axis=0)
        for interest, a in zip(interests, attention):
            update, candidate = gates(n, "evolution/augru", interest, final[b])
            update = a * update
            final[b] = (1 - update) * final[b] + update * candidate
    return n.mlp(np.concatenate([n.features(), final], axis=1), "dice")


def towers(n, tasks, mixtures):
    """Every task's tower over what is its own to read."""
    out = []
    for (task, classes), x in zip(tasks, mixtures):
        x = n.hidden(task + "/tower", x, n.options["tower"])
        out.append(n.linear(task, x, n.options["classes"] if classes else 1))
    return out


def shared_bottom(n, tasks):
    shared = n.hidden("shared", n.features(), n.options["hidden"])
    return towers(n, tasks, [shared] * len(tasks))


def mmoe(n, tasks):
    """Ma et al. 2018, equations 6 to 8: f^k = sum_i g^k_i f_i, g^k = softmax(W_gk x)."""
    x = n.features()
    count = n.options["experts"]
    experts = [n.hidden(f"expert{i}", x, n.options["hidden"]) for i in range(1, count + 1)]
    mixtures = []
    for task, _ in tasks:
        gate = softmax(n.linear(task + "/gate/score", x, count, bias=False), axis=1)
        mixtures.append(sum(gate[:, i : i + 1] * expert for i, expert in enumerate(experts)))
    return towers(n, tasks, mixtures)
