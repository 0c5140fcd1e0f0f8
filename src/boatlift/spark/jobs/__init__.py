"""The jobs of steps: their plans, their inputs, and what their failures mean."""
