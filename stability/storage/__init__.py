"""The disk: one writer of files (``writing``), one owner a folder (``locking``), a list of what is its (``folder``)."""
