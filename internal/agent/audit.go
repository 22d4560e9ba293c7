package agent

import (
	"context"
	"errors"
	"net/netip"
)

// AuditStatus is what `audit -o json` prints.
type AuditStatus struct {
	Listed    int             `json:"listed"`
	Compared  int             `json:"compared"`
	Missing   int             `json:"missing"`
	Different int             `json:"different"`
	Extra     int             `json:"extra"`
	Hidden    int             `json:"hidden"`
	Repair    bool            `json:"repair"`
	Findings  []FindingStatus `json:"findings"`
}

// FindingStatus is one route that the data plane does not have as it acknowledged it.
type FindingStatus struct {
	Prefix   netip.Prefix `json:"prefix"`
	Table    uint32       `json:"table"`
	Elevated bool         `json:"elevated,omitempty"`
	Drift    string       `json:"drift"`
	Want     string       `json:"want,omitempty"`
	Found    string       `json:"found,omitempty"`
	By       string       `json:"by,omitempty"`
}

var errNoDataplane = errors.New("there is no data plane")

// Audit compares all routes of ours with one listing of the data plane.
func (a *Agent) Audit(ctx context.Context) (AuditStatus, error) {
	if a.cfg.FIB == nil {
		return AuditStatus{}, errNoDataplane
	}
	r, err := a.cfg.FIB.Audit(ctx)
	if err != nil {
		return AuditStatus{}, err
	}
	out := AuditStatus{
		r.Listed, r.Compared, r.Missing, r.Different, r.Extra, r.Hidden, r.Repair,
		[]FindingStatus{},
	}
	for _, f := range r.Findings {
		fs := FindingStatus{
			Prefix: f.Key.Prefix, Table: f.Key.Table, Elevated: f.Key.Elevated,
			Drift: f.Drift.String(), By: f.By,
		}
		if f.Want.Prefix.IsValid() {
			fs.Want = f.Want.String()
		}
		if f.Found.Prefix.IsValid() {
			fs.Found = f.Found.String()
		}
		out.Findings = append(out.Findings, fs)
	}
	return out, nil
}
