"""What tests are made of: values, the one formula for allowed errors, checks of ops of your own, and the project's case tables of every op."""
from ._comparison import assert_allclose as assert_allclose, assert_close as assert_close, make_tensor as make_tensor
from ._op_cases import check_op as check_op
