package etcdcoord

// Complete is the Config that New works with.
func (cfg Config) Complete() (Config, error) { return cfg.complete() }
