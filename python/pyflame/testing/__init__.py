"""What the project's own tests are made of: case tables of every op, values, and the one formula for allowed errors."""
from ._comparison import assert_allclose as assert_allclose, assert_close as assert_close, make_tensor as make_tensor
