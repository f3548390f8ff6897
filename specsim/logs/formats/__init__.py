"""The formats that specsim reads: each module (or package) has its record ``FORMAT``, or several.

A module that is here is known; one whose name begins with an underscore is a helper of others. See
:class:`specsim.logs.format.Format`.
"""
