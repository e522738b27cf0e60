"""Tables and figures from results. Nothing is recomputed here."""
