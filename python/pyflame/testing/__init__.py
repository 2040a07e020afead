"""What the project's own tests are made of: case tables of every op, values, and the one formula for allowed errors."""
