"""The gateway: agents that exist get rollover, offload, recall and a log by changing one URL."""
