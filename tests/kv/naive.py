"""A deliberately naive KV cache: tokens are written out, prefixes are whole tuples, every search is a scan.

It says what the real pool and manager must do, block ids included, and shares no code with them.
"""


class NaiveCache:
    """Blocks 1 … n - 1; a free list in the order of reuse; for each cached block the tokens up to its end."""

    def __init__(self, num_gpu_blocks, block_size, caching):
        self.block_size = block_size
        self.caching = caching
        self.free_list = list(range(1, num_gpu_blocks))
        self.tables = {}  # request -> blocks
        self.prefix_of = {}  # cached block -> its tokens and all tokens before them, in order of registration

    def holders(self, block):
        return sum(block in table for table in self.tables.values())

    def hits(self, tokens):
        """Blocks that hold the beginning of these tokens, all but the last token at most."""
        found = []
        while self.caching and (len(found) + 1) * self.block_size < len(tokens):
            prefix = tuple(tokens[: (len(found) + 1) * self.block_size])
            same = [block for block, cached in self.prefix_of.items() if cached == prefix]
            if not same:
                break
            found.append(same[0])
        return found

    def admit(self, request, tokens, num_new_tokens, *, reserve_full, num_left_free):
        hits = self.hits(tokens)
        num_computed = len(hits) * self.block_size + num_new_tokens
        wanted = len(tokens) if reserve_full else num_computed
        need = self.blocks_for(max(wanted, num_computed)) - len(hits)
        need += sum(block in self.free_list for block in hits) + num_left_free
        if need > len(self.free_list):
            return None
        for block in hits:
            if block in self.free_list:
                self.free_list.remove(block)
        self.tables[request] = hits + self.take(self.blocks_for(num_computed) - len(hits))
        self.cache(request, tokens[:num_computed])
        return self.tables[request]

    def extend(self, request, tokens, num_computed):
        """Blocks for the first `num_computed` of the request's known tokens (and unknown ones after them)."""
        need = self.blocks_for(num_computed) - len(self.tables[request])
        if need > len(self.free_list):
            return None
        new = self.take(need)
        self.tables[request] += new
        self.cache(request, tokens[:num_computed])
        return new

    def free(self, request):
        group = []
        for block in reversed(self.tables.pop(request)):
            if self.holders(block) == 0:
                if block in self.prefix_of:
                    self.free_list.append(block)
                else:
                    group.append(block)
        self.free_list = group + self.free_list

    def take(self, count):
        taken = []
        for _ in range(max(0, count)):
            block = self.free_list.pop(0)
            self.prefix_of.pop(block, None)
            taken.append(block)
        return taken

    def cache(self, request, tokens):
        """Register the full blocks of these tokens, each once, whatever equal blocks there are."""
        if not self.caching:
            return
        for index, block in enumerate(self.tables[request]):
            end = (index + 1) * self.block_size
            if end <= len(tokens) and block not in self.prefix_of:
                self.prefix_of[block] = tuple(tokens[:end])

    def reset(self):
        if self.tables:
            return False
        self.prefix_of.clear()
        return True

    def blocks_for(self, num_tokens):
        return -(-num_tokens // self.block_size)
