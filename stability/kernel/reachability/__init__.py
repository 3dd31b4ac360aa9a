"""Outer bounds of reachable states: invariant boxes, zonotopes, ellipsoids, backward linear bounds."""
