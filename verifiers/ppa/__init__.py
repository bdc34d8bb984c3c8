"""PPA verification: flow reports, functional equivalence, scores. No Gymnasium, no randomness that is not passed in."""
