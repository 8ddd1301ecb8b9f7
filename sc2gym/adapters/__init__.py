"""What other libraries need: each module imports its library and names the extra that has it."""
