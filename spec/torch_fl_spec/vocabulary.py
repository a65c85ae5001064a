"""The closed vocabulary of the operator registry: dtypes, kinds, regimes, labels and budget expressions.

SPEC.md's registry annex is rendered from the tables here, the compiler validates the YAML against them,
and the suite's evaluator implements exactly the names of NAMES, CONSTANTS and FUNCTIONS. Light on purpose:
no import but `ast` and `keyword`, so that the driver can read the registry too.
"""

from __future__ import annotations

import ast
import keyword

FLOATS = ("f32", "f64", "f16", "bf16")
INTS = ("i64", "i32", "i16", "i8", "u8")
NUMBERS = FLOATS + INTS
ALL = (*NUMBERS, "bool")

# Names that YAML may use for sets of dtypes.
DTYPE_SETS: dict[str, tuple[str, ...]] = {
    "F": FLOATS,
    "I": INTS,
    "N": NUMBERS,
    "A": ALL,
    "half": ("f16", "bf16"),
    "single": ("f32",),
    "double": ("f64",),
    "wide": ("f32", "f64"),
    "int": INTS,
    "index": ("i64", "i32"),
}

CLASSES = (
    *("pointwise", "reduction", "contraction", "normalisation", "pooling", "loss", "movement", "index", "random"),
)
PROFILES = ("core", "infer", "train")
CORE_DTYPES = ("f32", "i32", "i64", "bool")
# Dimensions that a kernel of a profile has to take, where calls of its operator have as many: batches of images.
PROFILE_NDIM = 4
TIERS = ("EXACT", "ACCURATE", "FAST")

# Slot kinds and the fl_arg tags that a slot of the kind may carry (NONE besides where it is optional).
SLOT_KINDS: dict[str, tuple[str, ...]] = {
    "tensor": ("TENSOR",),
    "tensor_list": ("TENSOR_LIST",),
    "scalar": ("BOOL", "INT", "UINT", "FLOAT"),
    "int": ("INT",),
    "float": ("FLOAT",),
    "bool": ("BOOL",),
    "int_list": ("INT_LIST",),
    "string": ("STRING",),
    "dtype": ("DTYPE",),
    "rng": ("RNG",),
}

DOMAINS: dict[str, str] = {
    "any": "every value of the dtype, special values included",
    "positive": "values above zero, apart from the special-value regime",
    "negative": "values below zero, apart from the special-value regime",
    "unit": "values of moderate size (|x| at most 16), apart from the special-value regime",
    "nonzero": "no zero in integer rows (FL-KERNEL-013 leaves the result unspecified there)",
    "nonnegative": "no negative value in integer rows",
    "castable": "floating values whose truncation lies in the range of the integer output dtype",
    "in_range_product": "values whose products stay in the normal range in every order",
    "sparse": "zeros among which about one output in two meets another value",
    "index": "integers in [0, size of the indexed dimension)",
}

REGIMES: dict[str, str] = {
    "exact_integer": "odd |v| <= m with n m^2 <= 2^p_a: every order is exact, so T = 0",
    "normal": "standard normal values with random mantissas",
    "wide": "normal values times 2^uniform(-10, 10); contractions with k of 8 to 64",
    "cancel": "large values in pairs of opposite sign among small ones",
    "offset": "mean of 1000 standard deviations",
    "tiny": "variance of the order of eps, values near the smallest normal number",
    "big_logits": "values above 88, where exp overflows unless it is shifted",
    "constant": "one value throughout; kappa(h) = h",
    "few": "values drawn from a small set; kappa(h) = h",
    "special": "zeros, subnormals, powers of two, extremes, infinities, NaN and half-way values, crossed",
    "exhaustive": "every bit pattern of an 8-bit or 16-bit dtype (unary operators)",
    "full_range": "integers over the whole range of the dtype, its extremes included",
    "boolean": "zeros and ones",
}
# Data with few distinct values break the mean independence behind the square root: kappa(h) = h there.
REPEATED_REGIMES = ("constant", "few", "special")

LABELS: dict[str, str] = {
    "zero_size": "an output or a reduced dimension without elements",
    "one_element": "exactly one element",
    "scalar_shape": "ndim 0",
    "tail": "an innermost size that is no multiple of 4, 8 and 32",
    "past_power": "a size of 2^k + 1 with k >= 6",
    "square": "equal sizes in two dimensions",
    "strided": "an input whose strides are not those of a contiguous tensor",
    "stride_zero": "an input with a zero stride and a size above one",
    "strided_out": "an output with holes or permuted dimensions",
    "offset": "a byte offset that is no multiple of 16",
    "special_values": "NaN, both zeros and (where the operator gets any) infinities in an input; fill: one as a number",
    "subnormal": "subnormal inputs",
    "mixed_signs": "operands of different signs",
    "scalar_operand": "a number in a slot that may hold a tensor",
    "alpha_not_one": "a factor other than one",
    "large_int": "integers beyond 2^24 (i32) or 2^53 (i64)",
    "ties": "equal extrema, or values half-way between two results",
    "every_choice": "every permitted value of a string slot",
    "optional_absent": "an optional slot that carries NONE",
    "optional_present": "an optional slot that carries a value",
    "unwanted_output": "an output that is not wanted: it has the sizes [0]",
    "unbatched": "an image, or scores of one sample, without batch dimension",
    "batch_statistics": "normalised by the mean and the variance of the batch",
    "running_statistics": "normalised by running statistics",
    "reduction_none": "a loss for each element",
    "reduction_mean": "the mean of the losses",
    "reduction_sum": "the sum of the losses",
    "ignored": "a target that is ignore_index, among others",
    "all_ignored": "no target but ignore_index",
    "inner_dim": "the last dimension as the operator's dimension",
    "outer_dim": "another than the last dimension as the operator's dimension",
    "many_dims": "two or more dimensions reduced at once",
    "beta_zero": "beta 0 with NaN in self",
    "transposed_operand": "a matrix operand with its last two strides exchanged",
    "long_k": "a contraction over more than 256 products",
    "transposed": "transposed convolution",
    "output_padding": "transposed convolution with output padding",
    "grouped": "more than one group",
    "dilated": "dilation above one",
    "padded": "padding above zero",
    "shared_elements": "an element in two windows",
    "ceil_window": "a window that reaches beyond the padded input (ceil_mode)",
    "padding_counted": "padding that counts in the divisor of an average",
    "padding_not_counted": "padding that does not count in the divisor of an average",
    "global_window": "one window that holds the whole plane",
    "spatial_1d": "one spatial dimension",
    "spatial_2d": "two spatial dimensions",
    "duplicates": "an index that occurs more than once",
    "empty_list_entry": "a tensor without elements in a tensor list",
    "long_list": "a tensor list of three or more entries",
    "seed_pair": "the same case under two seeds",
    "offset_pair": "the same case under two generator offsets",
    "partial_group": "an output whose size is no multiple of the values per counter",
}

# Regimes and labels that have a meaning for some dtypes only; absent ones fit every dtype.
REGIME_DTYPES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("normal", "wide", "cancel", "offset", "tiny", "big_logits"), FLOATS),
    "exact_integer": NUMBERS,
    "exhaustive": ("f16", "bf16", "i8", "u8", "i16"),
    "full_range": INTS,
    "boolean": ("bool",),
}
LABEL_DTYPES: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("special_values", "subnormal", "beta_zero"), FLOATS),
    "mixed_signs": (*FLOATS, "i64", "i32", "i16", "i8"),
    "large_int": ("i64", "i32"),
    "alpha_not_one": NUMBERS,
    "ties": NUMBERS,
}

# Error bounds B in units in the last place for tier ACCURATE: OpenCL C, full profile, section 7.4, where the
# same numbers hold for single and double precision.
CONSTANTS: dict[str, float] = {
    "B_exp": 3.0,
    "B_log": 3.0,
    "B_rsqrt": 2.0,
    "B_sin": 4.0,
    "B_cos": 4.0,
    "B_tanh": 5.0,
    "B_pow": 16.0,
    "B_erf": 16.0,
    "inf": float("inf"),
}

# Values that every expression may use; the evaluator computes them from the row and its declaration.
NAMES: dict[str, str] = {
    "ref": "the oracle's value of the element",
    "u_a": "unit roundoff of the accumulator (2^-p_a), that of its declared significant bits included",
    "u_o": "unit roundoff of the output dtype",
    "u_in": "roundoff of inputs that a FAST kernel shortens first: 2^-11 for f32, 2^-24 for f64, else 0",
    "min_normal_a": "2^emin_a, the smallest normal number of the accumulator",
    "tiny_a": "2^(emin_a - p_a), half the smallest subnormal number of the accumulator",
}

# Values that the oracle supplies beside ref, per element, by operator class.
AUXILIARIES: dict[str, dict[str, str]] = {
    "pointwise": {"quotient": "self / other before the rounding mode"},
    "reduction": {
        "n": "number of elements that the output element is reduced from",
        "h": "additions on the longest path for n elements as the row declares it (cumsum: the position)",
        "sum_abs": "sum of |x| over these elements",
        "mean_abs": "sum_abs / n",
        "in_range": "1 where no product of a subset of the elements leaves the accumulator's normal range",
    },
    "contraction": {
        "n": "number of products summed into the output element",
        "h": "additions on the longest path for n products as the row declares it",
        "abs_dot": "the same contraction of |A| and |B|, without bias",
    },
    "normalisation": {
        "n": "number of elements normalised together, or summed for what they give back; 0 for given statistics",
        "h": "additions on the longest path for n elements as the row declares it",
        "dev": "softmax: |x_j - max x|; layer norm, batch norm: |x_j - mean x|",
        "mean_dev": "softmax: sum of p_i |x_i - max x|",
        "log_s": "logarithm of the sum of exp(x_i - max x)",
        "p": "log_softmax backward: exp(output)",
        "sum_abs": "sum of the absolute values of what is summed: grad_output, in softmax backward times output",
        "mean_abs": "mean of |x|, of given statistics |mean|; batch norm backward: of |grad_out|, for given ones 0",
        "s": "sqrt(variance + eps)",
        "variance": "batch norm: the variance that divides by n - 1",
        "cross": "batch norm backward: mean of |grad_out * (x - mean)| / s; 0 for given statistics",
    },
    "pooling": {
        "n": "number of values summed into the output element",
        "h": "additions on the longest path for n values as the row declares it",
        "sum_abs": "sum of the absolute values of these, each over the divisor of its window where there is one",
    },
    "loss": {
        "n": "number of targets",
        "h": "additions on the longest path for n elements as the row declares it",
        "sum_abs": "sum of the absolute values of what is summed, over |total_weight| for the mean",
        "gain": "weight of the element's class",
    },
    "movement": {},
    "index": {
        "n": "number of values added into the output element, the initial one included",
        "h": "n - 1",
        "sum_abs": "sum of the absolute values of these",
    },
    "random": {},
}

FUNCTIONS: dict[str, tuple[int, str]] = {
    "abs": (1, "absolute value"),
    "sqrt": (1, "square root"),
    "square": (1, "x * x"),
    "round": (1, "nearest integer"),
    "min": (2, "smaller of two"),
    "max": (2, "larger of two"),
    "where": (3, "second where the first is true, else third"),
    "kappa": (1, "min(h, 6 sqrt(h)); h on data with few distinct values"),
    "ulp_a": (1, "2^(max(floor(log2 |r|), emin) - p + 1) of the accumulator's dtype"),
    "ulp_o": (1, "the same of the output dtype"),
}

# Source of the budget entries that the compiler adds for rows with integer or bool outputs.
EXACT_BY_RULE = "integer and bool results are exact, with the dtype's wrap-around"

_ALLOWED_NODES = (
    ast.Expression,
    ast.BinOp,
    ast.UnaryOp,
    ast.Compare,
    ast.BoolOp,
    ast.Call,
    ast.Name,
    ast.Load,
    ast.Constant,
    ast.Add,
    ast.Sub,
    ast.Mult,
    ast.Div,
    ast.Pow,
    ast.USub,
    ast.Eq,
    ast.NotEq,
    ast.Lt,
    ast.LtE,
    ast.Gt,
    ast.GtE,
    ast.And,
    ast.Or,
)


def expression_name(slot: str) -> str:
    """The name of a slot inside an expression: a Python keyword (`from`) takes a trailing underscore."""
    return f"{slot}_" if keyword.iskeyword(slot) else slot


def names_in(expression: str, known: set[str]) -> set[str]:
    """Names that a budget expression uses.

    Raises ValueError for anything outside the grammar: a node kind, a function or its number of
    arguments, or a name that is not in `known`.
    """
    try:
        tree = ast.parse(expression, mode="eval")
    except SyntaxError as error:
        raise ValueError(f"{expression!r} is no expression: {error.msg}") from None
    functions = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    used: set[str] = set()
    for node in ast.walk(tree):
        if not isinstance(node, _ALLOWED_NODES):
            raise ValueError(f"{expression!r}: {type(node).__name__} is not in the grammar")
        if isinstance(node, ast.Call):
            name = node.func.id if isinstance(node.func, ast.Name) else ""
            if name not in FUNCTIONS:
                raise ValueError(f"{expression!r}: unknown function {ast.unparse(node.func)!r}")
            if node.keywords or len(node.args) != FUNCTIONS[name][0]:
                raise ValueError(f"{expression!r}: {name} takes {FUNCTIONS[name][0]} arguments")
        elif isinstance(node, ast.Constant) and not isinstance(node.value, (int, float, str)):
            raise ValueError(f"{expression!r}: constant {node.value!r} is no number or string")
        elif isinstance(node, ast.Name) and id(node) not in functions:
            if node.id not in known:
                raise ValueError(f"{expression!r}: unknown name {node.id!r}")
            used.add(node.id)
    return used
