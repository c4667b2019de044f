"""The K/V cache of a model: its layout, read off the plan, and its pool."""
