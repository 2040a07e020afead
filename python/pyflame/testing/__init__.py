"""What the project's own tests are made of: case tables of every op, values, and the one formula for allowed errors."""
from ._comparison import assert_allclose, assert_close, make_tensor  # noqa: F401
