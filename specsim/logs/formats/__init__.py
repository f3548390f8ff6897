"""The formats that specsim reads: a module (or package) for each, with its record ``FORMAT``.

A module that is here is known; one whose name begins with an underscore is a helper of others. See
:class:`specsim.logs.format.Format`.
"""
