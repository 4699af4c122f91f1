"""Networks of products that are more than a matrix of weights; cases of onnx_forms.py."""
import numpy
from onnx import numpy_helper

from onnx_network import DENSE, DIM, FIELDS, case


@case()
def fields_weighed_alike(n):
    """As many places as an example may have samples, and the same numbers at each."""
    ones = n.Constant(value=numpy_helper.from_array(numpy.ones((FIELDS, FIELDS), dtype=numpy.float32)))
    return n.Mul(n.MatMul(ones, n.vectors), n.Tanh(n.MatMul(n.vectors, n.drawn(DIM, DIM))))


@case()
def einsums(n):
    fields = n.Transpose(n.vectors, perm=[1, 0, 2])
    parts = [n.Einsum("dense", n.drawn(2, DENSE, 4), equation="bi,eio->beo"), n.Einsum(n.vectors, equation="bfd->bdf"),
             n.Einsum(n.vectors, equation="bfd->bd"), n.Einsum(fields, n.drawn(FIELDS, DIM, 2), equation="fbd,fde->bfe"),
             n.Einsum(fields, fields, equation="fbd,gbd->bfg"), n.Unsqueeze(n.Einsum("dense", "dense", equation="bi,bi->b"), n.ints(1)),
             n.Einsum(n.vectors, "dense", equation="bfd,bi->bi"), n.Einsum("dense", "dense", equation="bi,bj->bij")]
    return n.Concat(*[n.Flatten(p) for p in parts], axis=1)


@case()
def einsums_with_weights(n):
    """What stays in both, is summed or is a letter of one alone, anywhere; the weight as either operand."""
    parts = [n.Einsum("dense", n.drawn(4, DENSE), equation="bi,oi->bo"), n.Einsum(n.drawn(2, 4, DENSE), "dense", equation="eoi,bi->boe"),
             n.Einsum(n.vectors, n.drawn(2, DIM, FIELDS, 3), equation="bfi,eifo->boef"), n.Einsum(n.vectors, n.drawn(FIELDS, DIM), equation="bfi,fi->b"),
             n.Einsum(n.vectors, n.drawn(5, FIELDS), equation="bfi,of->bio"), n.Einsum(n.drawn(2), "dense", equation="e,bi->bei"),
             n.Einsum(n.vectors, n.drawn(DIM, 3, 2), equation="bfi,ioz->bfo"), n.Einsum(n.vectors, n.drawn(FIELDS), equation="bfi,f->bfi")]
    return n.Concat(*[n.Reshape(p, n.ints(0, -1)) if k != 3 else n.Unsqueeze(p, n.ints(1)) for k, p in enumerate(parts)], axis=1)


@case()
def einsums_of_more_or_other_axes(n):
    rows = n.Reshape(n.vectors, n.ints(-1, DIM))
    by_row = n.Reshape(n.Einsum(rows, n.drawn(DIM, 3), equation="ij,jk->ik"), n.ints(-1, FIELDS, 3))
    products = n.Reshape(n.Einsum(rows, rows, equation="ni,nj->nij"), n.ints(-1, FIELDS * DIM * DIM))
    three = n.Einsum("dense", n.drawn(DENSE, DIM, scale=1.0), n.vectors, equation="bi,id,bfd->bf")
    low_rank = n.Einsum("dense", n.drawn(DENSE, 2), n.drawn(2, 5), equation="bi,ir,ro->bo")
    open_axes = n.Einsum(n.vectors, n.drawn(DIM, 5), equation="...d,de->...e")
    behind = n.Einsum(n.Transpose(n.vectors, perm=[2, 0, 1]), n.drawn(2, DIM), equation="d...,ed->...e")
    twice = n.drawn(DIM, 2)
    shared = n.Add(n.Einsum(n.vectors, twice, equation="bfd,de->bfe"), n.Einsum(n.Tanh(n.vectors), twice, equation="bfd,de->bfe"))
    return n.Concat(three, low_rank, *[n.Flatten(p) for p in (by_row, products, open_axes, behind, shared)], axis=1)


@case()
def matrices_side_by_side(n):
    """Of every sample one row meets each, all rows each, or every field its own."""
    experts = n.MatMul(n.Unsqueeze(n.dense, n.ints(1, 2)), n.drawn(3, DENSE, 4))
    before = n.MatMul(n.Unsqueeze(n.dense, n.ints(0)), n.drawn(3, DENSE, 4))
    fields = n.MatMul(n.Unsqueeze(n.vectors, n.ints(1)), n.drawn(2, DIM, 3))
    own = n.MatMul(n.Unsqueeze(n.vectors, n.ints(2)), n.drawn(FIELDS, DIM, 5))
    grid = n.MatMul(n.Unsqueeze(n.vectors, n.ints(2, 3)), n.drawn(1, FIELDS, 2, DIM, 3))
    table = n.drawn(2, DENSE, 4)
    both = n.Concat(*[n.MatMul(n.Unsqueeze(x, n.ints(1, 2)), table) for x in (n.dense, n.Tanh(n.dense))], axis=1)
    return n.Concat(n.Flatten(experts), n.Flatten(n.Transpose(before, perm=[1, 0, 2])), *map(n.Flatten, (fields, own, grid, both)), axis=1)


@case()
def matrices_on_the_left(n):
    """One for each field, several for all, computed ones, those of the code, and a vector."""
    columns, heads = n.Unsqueeze(n.vectors, n.ints(3)), n.Unsqueeze(n.vectors, n.ints(1))
    own = n.MatMul(n.drawn(FIELDS, DIM, DIM), columns)
    several = n.MatMul(n.drawn(2, 5, FIELDS), heads)
    computed = n.MatMul(n.Softmax(n.drawn(2, 3, FIELDS), axis=-1), heads)
    known = n.MatMul(n.Constant(value=numpy_helper.from_array(numpy.tri(5, FIELDS, dtype=numpy.float32)[None])), n.vectors)
    second = n.MatMul(n.drawn(DIM, 2, FIELDS), n.Transpose(n.vectors, perm=[2, 1, 0]))
    return n.Concat(*map(n.Flatten, (own, several, computed, known)), n.MatMul(n.drawn(FIELDS), n.vectors),
                    n.Flatten(n.Transpose(second, perm=[2, 0, 1])), axis=1)
