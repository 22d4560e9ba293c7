package table

import "strconv"

const CONDITION_LOCAL_PREF = CONDITION_ORIGIN + 1

// LocalPrefCondition matches paths with this LOCAL_PREF, or without one where it is the default.
type LocalPrefCondition uint32

func (c *LocalPrefCondition) Type() ConditionType { return CONDITION_LOCAL_PREF }

func (c *LocalPrefCondition) Evaluate(path *Path, _ *PolicyOptions) bool {
	pref, err := path.GetLocalPref()
	return err == nil && pref == uint32(*c)
}

func (c *LocalPrefCondition) Set() DefinedSet { return nil }

func (c *LocalPrefCondition) Name() string { return "" }

func (c *LocalPrefCondition) String() string { return strconv.FormatUint(uint64(*c), 10) }

// NewLocalPrefCondition returns no condition for 0.
func NewLocalPrefCondition(pref uint32) (*LocalPrefCondition, error) {
	if pref == 0 {
		return nil, nil
	}
	c := LocalPrefCondition(pref)
	return &c, nil
}
