# SPDX-License-Identifier: Apache-2.0
"""Messages of `open_inference.proto`, in a separate descriptor pool.

Needs protobuf (extra `grpc`).
"""

from __future__ import annotations

import base64
import zlib
from typing import Any

from google.protobuf import descriptor_pb2, message_factory
from google.protobuf.descriptor_pool import DescriptorPool

__all__ = ["METHODS", "POOL", "SERVICE", "message"]

_DESCRIPTOR = """
c-qxjTW=dh6s~W%9ADy0E)7f5CR<9Ywxp1@=>;LwTpFyVY1pPIAR%jGuM?}zuJP`cg#Utg=)d5VHzWjaNPXcyz*{9G&RlkOc
D;5kYE<#&IrGhTE_2Sz*)hDj4dYJRva3zIVRbCKX3e!bj^~hJDbUAY^r_W(X?50`FD=9R&bM4ozXC)Rx^2gHEkYpM!tqpUCU
s@VV88Y80BKle{UBI>4aOo;K`;)v4iyLnKF}Y)=wqjDwNwVG%QpA8u3>}yCQ~qoly1|pr_xLu4E3u(REoap&cXz@?Xl&Vb<;
BgqZ=?8p9md4x-sNDfVJ;gHXXQAnVAeuDiVDe#+k7({l|3q_cTnzX!=;I!H`(!A`!Jnj_F*xWqJ*#vxnBwHF8W=VW4TZeb1f
B;;Q`ojkz$D61C55qMJ?_Lb04wV9@bB#*{l5Q?Op!f>Ly<m&bI@J7`-XbaG4+!`(G;f^JU6-~;{76qG8|rVX=$44%~?7XY>$
r&VoJ2~VRh&KSc~#z15i@=e=YxFrx&Q3esfgdB1a3a-~_+B*WnLX4O^mr79G@wZ!+0A&%Bq987nAYav%Lr|82{7~H@fpR;rz
gpXMnpoq%q+yJC#^bi+*qDsCDHoy0+^Y!zdYHjNDNvyV%|Zd`LkvxyoI%}|kV{bFc1aKqY>`P-b$*13=2X#OPD#*Z81Z9dG-
0wv$?sxov~SLbumOanjRF-$K`PfEf>IQuFroR|2cG4Is3AlZj3Sc;F#X3NaZs^P230!^ut$YeB?E_<WSyoV8o;NcWn5swEpc
L$Al<Bs+QVOD4M6T;P<hwm^`craCsWp4vAxcLp{yq>vW9u(ebkqU4Js7RlSNkWmth4DFrGVy^N4{}f5KJ@#(;-h2huUWuQCP
EEh-pgoMC1J@z;J!Lpg5U+bMnWZ9>35J64$b?!bK*Qj$4^<mVOggvvA|Ui%70V$`GznHSc9aGCxjHz4=YZ28>X{QP@ycFACH
-2L?3l=e>wwBEav7}=djoYE{#t0zo@ei1uGuTPCx|0^fD5aF}9j!)x&c$|>0y~<kLrv38s@XI;M#YV{`JqKg7r1>y<HW!Rho
Z`!5QU8&K(Js2TRMpjlD1ClR&;EyXeR>(*01z?5_#|%9$1qGcr7Cx+G(V<LFXP-MPVudyzbH$+xyQFBW3b=)4&<30z7cO(QA
SbpIwdsW1~r;Hz4A`B$LUymjP3chS$kpG^{G+bo{J&*07`r2es$aQYP(gp`Gdt;x*XQExxYw-Pf<p$L5^L1qU<KRlM^Qmj=|
Cz;AJK5-^n<dhszKseNh}o+_#f`WvswhghQNZXiAMq7)^pH0xwYdJ^aYTQf<0kv$pJa@E0CxShO|Aw>`#@HTZxYb?h63itv~
IcM3*WMoI#gEWn`a*J_sQ3jOC4{auQT0E|hKZJ5oL$oc+@7?R9G4#VbK?Cd>k35SvgP^>w7xC0jd?iNQw|Fs3Ngt@B!i%zpR
Do!8oBNThumg#!omp}6$YZR%p5(sIxEfH0|8(D@cN%0cf76e-RR?Vlz3Sf={rI-VkR7Mxgr-wiFUyC0xp>K*dDs=USFd1|IW
a+yFXS;Yr3V#ZDe(!P{Q>>)4cpfVY`7O@v`#A+u;=!TqxJ}RL9K3^%M&#k&E#Ws~f$}h6@2|n<Fd3R%vFp};5M12kj+{~Zl~
O2XO^bY4Nvkg_zoy`97qbXAeuS|21(8;}l^$z?Ban*3Vr^I6Kqx(CNzf(%ch3@i6d#aD7(nY?glCypjP#$<poNAprE88^KX$
01?O!_H{ymHIC>a);+ljG>o6xs^-abkXa4*^eT#P4wLUOC!z%;y{XdT}@{Z$&y#pa*cty2i$^MnxI=^es|5$`;R7ht-FeLRd
;-=ttD=w?uTVe{*am1<>u>%m%OxqOBcVVFr4pFCMBr||X!HhflD-@IE+lM%?v@h1!AOhj;VzMPE+7H*Yul94eCNJdUDsE%>{
kUGZY!*cn<4TOU-M08#mBDf%xKixDc>#OBr=*~l2U7CMA2;-~9#*)0S=mRaDVdN1&_&`k}S8Mz+Tbu4NEAsRVS%<vxT1~p~>
dUltzSp$mdn67iPIs<5BNVpj9<!3{Ih3NW(qyK~fY?j2Hrodwi8rAbd3PljdcVkW+L^<iY!%<xj&=L4J_mIB9{CpI8>4pT(>
=P(gpEmPT9NOY?yhRK&y6p5^?neQJ9dvnxRY<(2zQTb5V;#LmT=ONOGmmVv=0x1Nj)u?NIZ<l<s%-a+LgnBfwt`d_FvS^{{Y
ChXEp
"""  # by tools/proto_descriptor.py

SERVICE = "inference.GRPCInferenceService"

POOL = DescriptorPool()
"""Own descriptor pool, because another package may use equal names in the default pool."""

for _file in descriptor_pb2.FileDescriptorSet.FromString(
    zlib.decompress(base64.b85decode(_DESCRIPTOR.replace("\n", "")))
).file:
    POOL.Add(_file)

METHODS = [method.name for method in POOL.FindServiceByName(SERVICE).methods]
"""Names of the service's methods."""


def message(name: str) -> Any:
    """Return the class of a message.

    Example:
        >>> message("ServerLiveResponse")(live=True).live
        True
    """
    return message_factory.GetMessageClass(POOL.FindMessageTypeByName(f"inference.{name}"))
