"""SHOWS: the faces and the composition roots. Composes everything, decides nothing by itself."""
