// Variables for one of several models. A router starts a server for each model with its own
// environment, and tells it its model by --alias: the file of that name in the folder that
// ARMLOAD_OWN_ENVIRONMENT names holds lines NAME=value, of which those of ours are set. The router
// itself has no alias, so nothing is set, and it hands on what it was given.

#pragma once

// Called before the first of our variables is read.
void armload_set_own_environment(void);
