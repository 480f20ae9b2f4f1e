"""The cheapest placement: `cover` states the problem by itself, `frontier` and `integer` solve it."""
