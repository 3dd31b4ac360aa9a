"""Where jobs run: in this process, on all cores, on a Dask cluster. One runner for sweeps, reports and studies."""
