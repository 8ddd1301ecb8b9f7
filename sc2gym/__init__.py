"""sc2gym: a Gymnasium environment over recorded StarCraft II games."""
