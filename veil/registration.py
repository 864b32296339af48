"""Names for `gymnasium.make`. Imports nothing but Gymnasium, and that only when asked."""

SYSTEMS = ("Platoon", "Gain")


def register() -> None:
    """Make veil/Platoon-v0 and the like known. Importing `veil` after `gymnasium` does this by itself."""
    import gymnasium

    for name in SYSTEMS:
        known = f"veil/{name}-v0"
        if known not in gymnasium.registry:
            gymnasium.register(known, entry_point="veil.environment:Sharing", kwargs={"system": name})
