"""Reference forms of the zoo's models that multiply field vectors."""

import itertools

import numpy as np

from zoo_parts import FIELDS, flat, sigmoid, softmax


def pairs(vectors):
    """Of fields, i < j."""
    return itertools.combinations([vectors[:, f] for f in range(vectors.shape[1])], 2)


def dot(a, b):
    return (a * b).sum(axis=1, keepdims=True)


def lr(n):
    return n.first_order()


def fm(n):
    return n.first_order() + sum(dot(a, b) for a, b in pairs(n.vectors()))


def ffm(n):
    """Juan et al. 2016, equation 4: sum over pairs of v_(i, of j) . v_(j, of i)."""
    rows = n.vectors()
    k = rows.shape[2] // (FIELDS - 1)

    def towards(i, j):  # a field has vectors for the others alone, in their order
        at = k * (j if j < i else j - 1)
        return rows[:, i, at : at + k]

    second = sum(
        dot(towards(i, j), towards(j, i)) for i, j in itertools.combinations(range(FIELDS), 2)
    )
    return n.first_order() + second


def fwfm(n):
    """Pan et al. 2018, equation 4; weights in the order (1, 0), (2, 0), (2, 1), (3, 0), ..."""
    v = n.vectors()
    places = [(i, j) for i in range(FIELDS) for j in range(i)]
    r = n.trained("fwfm/pairs/weight", 1, len(places))[0]
    return n.first_order() + sum(w * dot(v[:, i], v[:, j]) for w, (i, j) in zip(r, places))


def nfm(n):
    pooled = sum(a * b for a, b in pairs(n.vectors()))
    return n.first_order() + n.mlp(pooled)


def afm(n):
    """Xiao et al. 2017, equations 5 and 6: a'_ij = h^T act(W (v_i * v_j) + b), a = softmax over
    pairs, y = linear + p^T sum a_ij (v_i * v_j)."""
    products = [a * b for a, b in pairs(n.vectors())]
    scores = []
    for product in products:
        hidden = n.linear("attention/hidden", product, n.options["attention"])
        hidden = n.activate("attention", hidden, n.option("activation", "relu"))
        scores.append(n.linear("attention/score", hidden, 1, bias=False))
    weights = softmax(np.concatenate(scores, axis=1), axis=1)
    pooled = sum(weights[:, k : k + 1] * product for k, product in enumerate(products))
    return n.first_order() + n.linear("afm/logit", pooled, 1, bias=False)


def afn(n):
    """Cheng et al. 2020, equation 7: neuron j is exp(sum_i w_ij ln e_i) in each place of the
    vectors; batch normalisation after the logarithm and after the exponential, by field and by
    neuron. The hidden layers read all neurons of the vectors' place 0, then of place 1, ..."""
    e = n.all_vectors()
    logs = np.log(np.maximum(np.abs(e), 1e-5))
    norm = n.option("log_batch_norm", True)
    places = []
    for d in range(e.shape[2]):
        x = logs[:, :, d]
        if norm:
            x = n.batch_norm("afn/log_batch_norm", x)
        x = np.exp(n.linear("afn/neurons", x, n.options["log_neurons"], bias=False))
        if norm:
            x = n.batch_norm("afn/exp_batch_norm", x)
        places.append(x)
    deep = n.hidden("afn", np.concatenate(places, axis=1), n.options["afn_hidden"])
    logit = n.linear("afn/logit", deep, 1)
    if not n.option("ensemble", True):
        return logit
    other = n.mlp(flat(n.table(n.option("deep_table", "deep"))))
    return n.linear("model/logit", np.concatenate([logit, other], axis=1), 1)


def autoint(n):
    """Song et al. 2019, equations 5 to 9: for head h, field m asks field k:
    alpha_mk = softmax over k of <Q_h e_m, K_h e_k>; e_m' = sum alpha_mk V_h e_k; heads side by
    side; act(e' + W_res e). A head's rows of the weights follow those of the head before."""
    heads, width = n.option("heads", 2), n.options["attention"]
    size = width // heads
    x = n.all_vectors()
    for layer in range(1, n.option("attention_layers", 2) + 1):
        name = f"attention/{layer}"
        dim = x.shape[2]
        query, key, value = (
            n.trained(f"{name}/{what}/weight", width, dim) for what in ("query", "key", "value")
        )
        answers = []
        for h in range(heads):
            rows = slice(h * size, (h + 1) * size)
            asked = np.einsum("sd,bmd->bms", query[rows], x)
            keys = np.einsum("sd,bkd->bks", key[rows], x)
            values = np.einsum("sd,bkd->bks", value[rows], x)
            scores = np.einsum("bms,bks->bmk", asked, keys)
            if n.option("scale", False):
                scores = scores / np.sqrt(size)
            answers.append(np.einsum("bmk,bks->bms", softmax(scores, axis=2), values))
        joined = np.concatenate(answers, axis=2)
        residual = x if dim == width else n.linear(name + "/residual", x, width, bias=False)
        x = joined + residual
        if n.option("layer_norm", False):
            x = n.layer_norm(name + "/layer_norm", x, (width,))
        x = n.activate(name, x, n.option("activation", "relu"))
    logit = n.linear("attention/logit", flat(x), 1)
    if n.options["hidden"]:
        logit = logit + n.mlp(n.features())
    return logit + n.first_order() if n.option("wide", False) else logit


def xdeepfm(n):
    """Lian et al. 2018, equation 6: X^k_h = sum_ij W^kh_ij (X^0_i * X^(k-1)_j), and here a bias;
    each summed over its places."""
    x0 = n.vectors()
    x, sums = x0, []
    for k, units in enumerate(n.options["cin"], 1):
        weight = n.trained(f"cin/{k}/weight", units, FIELDS, x.shape[1])
        bias = n.trained(f"cin/{k}/bias", units)
        x = np.einsum("hij,bid,bjd->bhd", weight, x0, x) + bias[None, :, None]
        sums.append(x.sum(axis=2))
    logit = n.first_order() + n.linear("cin/logit", np.concatenate(sums, axis=1), 1)
    return logit + n.mlp(n.features()) if n.options["hidden"] else logit


def dlrm(n):
    """Naumov et al. 2019: the dense features' vector is the first; the top network reads it, then
    its products with the others in the order (1, 0), (2, 0), (2, 1), ..., or all vectors."""
    v = n.vectors()
    read, vectors = [], [v[:, f] for f in range(v.shape[1])]
    if n.features_of_dense:
        read = [n.hidden("bottom", n.dense(), n.options["bottom"] + [v.shape[2]])]
    if n.option("interaction", "dot") == "cat":
        read.append(flat(v))
    else:
        vectors = read + vectors
        own = 1 if n.option("self", False) else 0
        read += [dot(vectors[i], vectors[j]) for i in range(len(vectors)) for j in range(i + own)]
    top = n.hidden("top", np.concatenate(read, axis=1), n.options["hidden"])
    return n.linear("top/logit", top, 1)


def finalnet(n):
    """Zhu et al. 2023: a layer is h1 + h1 * h2 of the halves of W x + b, or both terms side by
    side of half as many units (residual: concat); block 1 reads the fields
    and, behind them, the fields times gates, which are linear in the fields, place by place; block
    2 reads the fields; the logits' mean."""
    fields = n.all_vectors()
    count = fields.shape[1]
    gated = fields
    if n.option("field_gate", True):
        weight, bias = n.trained("gate/linear/weight", count, count), n.trained(
            "gate/linear/bias", count
        )
        gate = np.einsum("gf,bfd->bgd", weight, fields) + bias[None, :, None]
        gated = np.concatenate([fields, fields * gate], axis=1)
    logits = []
    for name, x in (("block1", gated), ("block2", fields)):
        if not n.options[name]:
            continue
        h = flat(x)
        for k, units in enumerate(n.options[name], 1):
            concat = n.option("residual", "sum") == "concat"
            both = n.linear(f"{name}/{k}/linear", h, units if concat else 2 * units)
            first, second = np.split(both, 2, axis=1)
            terms = [first, first * second]
            h = n.after(f"{name}/{k}", np.concatenate(terms, axis=1) if concat else sum(terms))
        logits.append(n.linear(name + "/logit", h, 1))
    return sum(logits) / len(logits)


def finalmlp(n):
    """Mao et al. 2023, equations 1 to 6: x_k = 2 sigmoid(gate_k(context_k)) * x; o_k = MLP_k(x_k);
    a context is a trained vector or the rows of a table of its own;
    b1 + w1 . o1 + b2 + w2 . o2 + the sum over heads of o1_h W_h o2_h."""
    x = n.features()
    out = []
    for k in ("1", "2"):
        selected = x
        if n.option("gate_hidden", []):
            table = n.option(f"gate{k}_table", None)
            if table:
                gate = flat(n.table(table))
            else:
                gate = np.tile(n.trained(f"gate{k}/context/value", 10), (len(x), 1))
            for i, units in enumerate(n.options["gate_hidden"], 1):
                name = f"gate{k}/{i}"
                gate = n.linear(name + "/linear", gate, units)
                gate = n.activate(name, gate, n.option("activation", "relu"))
            selected = x * 2 * sigmoid(n.linear(f"gate{k}/linear", gate, x.shape[1]))
        out.append(n.hidden("mlp" + k, selected, n.options["mlp" + k]))
    logit = n.linear("fusion/first", out[0], 1) + n.linear("fusion/second", out[1], 1)
    heads = n.option("heads", 1)
    for h in range(heads):
        left, right = (np.split(o, heads, axis=1)[h] for o in out)
        # Kept transposed, as [width of o2_h, width of o1_h].
        w = n.trained(f"fusion/{h + 1}/weight", right.shape[1], left.shape[1])
        logit = logit + np.einsum("bi,ji,bj->b", left, w, right)[:, None]
    return logit
