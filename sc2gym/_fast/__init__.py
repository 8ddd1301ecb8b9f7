"""The compiled core: bytes in, contiguous arrays out."""
