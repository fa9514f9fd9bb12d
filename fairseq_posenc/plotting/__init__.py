"""Pictures of position methods: what they do to attention where every position has the same content."""
