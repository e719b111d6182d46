"""Will this GPU fail within hours, by a learned model whose arithmetic is exact everywhere?"""
