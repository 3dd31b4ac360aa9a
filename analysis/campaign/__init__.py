"""Campaigns: training and analysis of several models, with their steps, files, processes and progress records."""
