"""The one vendor of the embedded system: where its server's binary lies and how it answers."""
